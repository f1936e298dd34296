#include "core/model/expert_block.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/model/model.h"
#include "core/model/processor_experts.h"

namespace moed {

void ExpertBlock::Run(LayerId layer, const ExpertBiases& biases, const Activations& input, ExpertProvider& provider,
                      ProcessorExperts* beside) {
  Release();  // the layer's Fence was after the last one's operations
  biases_ = biases;
  std::ranges::fill(step_.scratch.slot_places.first(static_cast<size_t>(input.tokens) * step_.spec.top_k), kNoOutput);
  int left = 0;  // experts to come
  for (int32_t expert = 0; expert < step_.spec.experts; ++expert) left += SlotsOf(expert).empty() ? 0 : 1;
  if (beside != nullptr) beside->BeginLayer();
  std::optional<ReadyExpert> next = WaitForNext(provider);
  while (next) {
    do {
      --left;
      MOED_CHECK(beside != nullptr || !next->on_processor);
      next->on_processor ? beside->Add(*std::move(next)) : Add(*std::move(next));
      next = provider.NextReady();
    } while (next && (next->on_processor ? beside->Fits(*next) : Fits(*next)));
    ComputeGroup(layer, input);
    if (beside != nullptr && beside->any()) {
      step_.backend.Begin();  // the device's are under way while the processor computes its own
      beside->Compute(layer, provider);
    }
    if (!next) next = left > 0 ? WaitForNext(provider) : provider.Next();
  }
}

void ExpertBlock::Release() {
  in_flight_.clear();
  for (Member& member : members()) member = {};
  count_ = 0;
  rows_ = 0;
}

// The next one may need the place of one that is in flight.
std::optional<ReadyExpert> ExpertBlock::WaitForNext(ExpertProvider& provider) {
  std::optional<ReadyExpert> next = provider.NextReady();
  if (next) return next;
  step_.backend.Begin();
  if (in_flight_.empty()) return provider.Next();
  step_.Fence().IgnoreError();  // the step remembers it
  Release();
  return provider.Next();
}

bool ExpertBlock::Fits(const ReadyExpert& ready) const {
  return rows_ + static_cast<int>(SlotsOf(ready.expert).size()) <= kGroupRows;
}

void ExpertBlock::Add(ReadyExpert ready) {
  const std::span<const int32_t> slots = SlotsOf(ready.expert);
  if (!ready.status.ok()) return Fail(slots, ready.status);
  MOED_CHECK(count_ < members_.size());
  Member& member = members_[count_++];
  member = {.ready = std::move(ready), .slots = slots, .first_row = rows_};
  rows_ += member.rows();
}

uint64_t ExpertBlock::ComputeGroup(LayerId layer, const Activations& input) {
  if (step_.spec.gated()) DropUnreadable(ExpertPart::kGate);
  DropUnreadable(ExpertPart::kUp);
  if (count_ == 1) {
    // An expert of many rows is worked off in blocks.
    const std::span<const int32_t> slots = members_[0].slots;
    for (size_t done = 0; done < slots.size(); done += kBlockRows) {
      members_[0].slots = slots.subspan(done, std::min<size_t>(kBlockRows, slots.size() - done));
      rows_ = members_[0].rows();
      ComputeRows(layer, input);
    }
  } else if (count_ > 1) {
    ComputeRows(layer, input);
  }
  uint64_t bytes = 0;
  for (Member& member : members()) {
    for (const PartBytes& part : member.parts) bytes += part.bytes.size();
    if (!step_.backend.Idle()) in_flight_.push_back(std::move(member.ready.handle));
    member = {};
  }
  count_ = 0;
  rows_ = 0;
  return bytes;
}

void ExpertBlock::ComputeRows(LayerId layer, const Activations& input) {
  Activations inner;
  {
    const TraceSpan span(step_.trace, "expert", kComputeTrack, layer, members_[0].ready.expert);
    GatherInputs(input);
    inner = Inner(layer);
  }
  if (step_.watcher != nullptr) TellInputs(layer, inner);
  Down(layer, inner);
}

void ExpertBlock::TellInputs(LayerId layer, const Activations& inner) {
  for (const Member& member : members()) {
    step_.watcher->OnExpert(layer, member.ready.expert, member.input, inner.Rows(member.first_row, member.rows()));
  }
}

absl::Status ExpertBlock::Take(Member& member, ExpertPart part) {
  if (!member.ready.handle.Has(part)) step_.backend.Begin();
  MOED_ASSIGN_OR_RETURN(member.parts[static_cast<size_t>(part)], member.ready.handle.Part(part));
  return absl::OkStatus();
}

const std::byte* ExpertBlock::Weights(Member& member, ExpertPart part) {
  const PartBytes& weights = member.part(part);
  if (weights.ready != nullptr && weights.ready != member.awaited) step_.backend.Await(*weights.ready);
  member.awaited = weights.ready;
  return weights.bytes.data();
}

// The members that stay keep their order and close up.
void ExpertBlock::DropUnreadable(ExpertPart part) {
  size_t kept = 0;
  rows_ = 0;
  for (Member& member : members()) {
    const absl::Status status = Take(member, part);
    if (!status.ok()) {
      Fail(member.slots, status);
      member = {};
      continue;
    }
    member.first_row = rows_;
    rows_ += member.rows();
    Member& to = members_[kept++];
    if (&to != &member) to = std::exchange(member, {});
  }
  count_ = kept;
}

// Rows that follow each other are taken where they are, the others are gathered, those of all members at once.
void ExpertBlock::GatherInputs(const Activations& input) {
  static_assert(kGroupRows <= kBlockRows);
  const int top_k = step_.spec.top_k;
  std::array<int32_t, kBlockRows> rows;
  size_t used = 0;
  for (const Member& member : members()) {
    if (member.consecutive(top_k)) continue;
    for (const int32_t slot : member.slots) rows[used++] = slot / top_k;
  }
  Activations gathered;
  if (used > 0) gathered = step_.backend.Gather(input, std::span(rows).first(used), step_.scratch.gathered_storage);
  int first = 0;
  for (Member& member : members()) {
    if (member.consecutive(top_k)) {
      member.input = input.Rows(member.slots.front() / top_k, member.rows());
    } else {
      member.input = gathered.Rows(first, member.rows());
      first += member.rows();
    }
  }
}

Activations ExpertBlock::Inner(LayerId layer) {
  Scratch& scratch = step_.scratch;
  const bool gated = step_.spec.gated();
  const int hidden = step_.spec.hidden;
  const int ffn = step_.spec.expert_ffn;
  std::array<MatMulJob, 2 * kGroupRows> jobs;
  size_t used = 0;
  InputForms forms;  // of down's input
  for (Member& member : members()) {
    const auto format = [&](ExpertPart part) { return step_.expert_formats.Of(layer, member.ready.precision, part); };
    forms = forms | InputForms::Of({format(ExpertPart::kDown)});
    const size_t row = static_cast<size_t>(member.first_row) * ffn;
    const auto bias = [&](const float* biases) { return BiasOf(biases, member, ffn); };
    if (gated) {
      const std::byte* gate = Weights(member, ExpertPart::kGate);
      jobs[used++] = {{format(ExpertPart::kGate), ffn, hidden, gate}, &member.input, &scratch.gate[row], ffn, bias(biases_.gate)};
    }
    const std::byte* up = Weights(member, ExpertPart::kUp);
    jobs[used++] = {{format(ExpertPart::kUp), ffn, hidden, up}, &member.input, &scratch.up[row], ffn, bias(biases_.up)};
  }
  step_.backend.MatMul(std::span(jobs).first(used));
  return step_.PrepareInner(rows_, ffn, forms);
}

void ExpertBlock::Down(LayerId layer, const Activations& inner) {
  std::span<Member> rest = members();
  while (!rest.empty()) {
    auto waiting =
        std::partition(rest.begin(), rest.end(), [](const Member& m) { return m.ready.handle.Has(ExpertPart::kDown); });
    if (waiting == rest.begin()) ++waiting;  // nothing is there: wait for one
    std::span<Member> some(rest.begin(), waiting);
    for (Member& member : some) {
      const absl::Status status = Take(member, ExpertPart::kDown);
      if (status.ok()) continue;
      Fail(member.slots, status);
      member.slots = {};
    }
    const TraceSpan span(step_.trace, "expert", kComputeTrack, layer, some[0].ready.expert);
    DownOf(layer, some, inner);
    rest = std::span<Member>(waiting, rest.end());
  }
}

void ExpertBlock::DownOf(LayerId layer, std::span<Member> some, const Activations& inner) {
  Scratch& scratch = step_.scratch;
  const int hidden = step_.spec.hidden;
  std::array<Activations, kGroupRows> inputs;
  std::array<MatMulJob, kGroupRows> jobs;
  size_t used = 0;
  for (Member& member : some) {
    if (member.rows() == 0) continue;  // failed
    const FormatId format = step_.expert_formats.Of(layer, member.ready.precision, ExpertPart::kDown);
    const std::byte* down = Weights(member, ExpertPart::kDown);
    const size_t place = member.slots.data() - scratch.expert_slots.data();
    for (size_t i = 0; i < member.slots.size(); ++i) scratch.slot_places[member.slots[i]] = static_cast<int32_t>(place + i);
    inputs[used] = inner.Rows(member.first_row, member.rows());
    const float* const bias = BiasOf(biases_.down, member, hidden);
    jobs[used] = {{format, hidden, step_.spec.expert_ffn, down}, &inputs[used], &scratch.slots[place * hidden], hidden, bias};
    ++used;
  }
  if (used > 0) step_.backend.MatMul(std::span(jobs).first(used));
}

const float* ExpertBlock::BiasOf(const float* biases, const Member& member, int width) {
  return biases == nullptr ? nullptr : biases + int64_t{member.ready.expert} * width;
}

std::span<const int32_t> ExpertBlock::SlotsOf(int32_t expert) const {
  const Scratch& scratch = step_.scratch;
  MOED_CHECK(expert >= 0 && expert < step_.spec.experts);
  const int32_t begin = scratch.expert_begin[expert];
  return scratch.expert_slots.subspan(begin, scratch.expert_begin[expert + 1] - begin);
}

void ExpertBlock::Fail(std::span<const int32_t> slots, const absl::Status& status) {
  for (int32_t slot : slots) {
    if (step_.scratch.choices[slot].probability == 0) continue;  // adds nothing: masked
    step_.batch.chunk_of(slot / step_.spec.top_k).chunk->status.Update(status);
  }
}

}  // namespace moed
