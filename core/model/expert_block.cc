#include "core/model/expert_block.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"

namespace moed {
namespace {

// Rows [first, first + count) of prepared activations.
Activations Rows(const Activations& all, int first, int count) {
  const int64_t blocks = int64_t{first} * Blocks(all.cols);
  return {count,
          all.cols,
          all.values + blocks * kBlockColumns,
          all.codes + blocks * kBlockColumns,
          all.scales + blocks,
          all.sums + blocks};
}

}  // namespace

void ExpertBlock::Run(LayerId layer, const float* norm, const Activations* whole, ExpertProvider& provider) {
  std::fill(step_.scratch.delivered.begin(), step_.scratch.delivered.end(), 0);
  std::optional<ReadyExpert> next = provider.Next();
  while (next) {
    do {
      Add(*std::move(next));
      next = provider.NextReady();
    } while (next && Fits(*next));
    ComputeGroup(layer, norm, whole);
    if (!next) next = provider.Next();
  }
}

bool ExpertBlock::Fits(const ReadyExpert& ready) const {
  return rows_ + static_cast<int>(SlotsOf(ready.expert).size()) <= kGroupRows;
}

void ExpertBlock::Add(ReadyExpert ready) {
  const std::span<const int32_t> slots = SlotsOf(ready.expert);
  if (!ready.status.ok()) return Fail(slots, ready.status);
  MOED_CHECK(count_ < members_.size());
  Member& member = members_[count_++];
  member = {std::move(ready), slots, rows_, {}};
  rows_ += member.rows();
}

void ExpertBlock::ComputeGroup(LayerId layer, const float* norm, const Activations* whole) {
  DropUnreadable(ExpertPart::kGate);
  DropUnreadable(ExpertPart::kUp);
  if (count_ == 1) {
    // An expert of many rows is worked off in blocks.
    const std::span<const int32_t> slots = members_[0].slots;
    for (size_t done = 0; done < slots.size(); done += kBlockRows) {
      members_[0].slots = slots.subspan(done, std::min<size_t>(kBlockRows, slots.size() - done));
      rows_ = members_[0].rows();
      ComputeRows(layer, norm, whole);
    }
  } else if (count_ > 1) {
    ComputeRows(layer, norm, whole);
  }
  for (Member& member : members()) member = {};
  count_ = 0;
  rows_ = 0;
}

void ExpertBlock::ComputeRows(LayerId layer, const float* norm, const Activations* whole) {
  Activations inner;
  {
    const TraceSpan span(step_.trace, "expert", kComputeTrack, layer, members_[0].ready.expert);
    Gather(norm, whole);
    inner = GateAndUp();
  }
  Down(layer, inner);
}

// Waits for the part. The members that stay keep their order and close up.
void ExpertBlock::DropUnreadable(ExpertPart part) {
  size_t kept = 0;
  rows_ = 0;
  for (Member& member : members()) {
    const absl::Status status = member.ready.handle.Part(part).status();
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

void ExpertBlock::Gather(const float* norm, const Activations* whole) {
  Scratch& scratch = step_.scratch;
  const int hidden = step_.spec.hidden;
  int gathered = 0;
  for (Member& member : members()) {
    // A token chooses an expert once, so these are all tokens in their order.
    if (whole != nullptr && member.rows() == whole->tokens) continue;
    for (const int32_t slot : member.slots) {
      const float* x = &scratch.x[static_cast<size_t>(slot / step_.spec.top_k) * hidden];
      std::copy_n(x, hidden, &scratch.gathered[static_cast<size_t>(gathered++) * hidden]);
    }
  }
  Activations prepared;
  if (gathered > 0) {
    float* rows = scratch.gathered.data();
    step_.backend.RmsNorm(rows, norm, step_.spec.rms_eps, gathered, hidden, rows);
    prepared = step_.backend.Prepare(rows, gathered, hidden, hidden, scratch.gathered_storage);
  }
  gathered = 0;
  for (Member& member : members()) {
    if (whole != nullptr && member.rows() == whole->tokens) {
      member.input = *whole;
    } else {
      member.input = Rows(prepared, gathered, member.rows());
      gathered += member.rows();
    }
  }
}

Activations ExpertBlock::GateAndUp() {
  Scratch& scratch = step_.scratch;
  const int hidden = step_.spec.hidden;
  const int ffn = step_.spec.expert_ffn;
  std::array<MatMulJob, 2 * kGroupRows> jobs;
  size_t used = 0;
  for (const Member& member : members()) {
    const FormatId format = step_.expert_formats[member.ready.precision];
    const size_t row = static_cast<size_t>(member.first_row) * ffn;
    const std::byte* gate = member.ready.handle.Part(ExpertPart::kGate)->data();
    const std::byte* up = member.ready.handle.Part(ExpertPart::kUp)->data();
    jobs[used++] = {{format, ffn, hidden, gate}, &member.input, &scratch.gate[row], ffn};
    jobs[used++] = {{format, ffn, hidden, up}, &member.input, &scratch.up[row], ffn};
  }
  step_.backend.MatMul(std::span(jobs).first(used));
  step_.backend.SwiGlu(scratch.gate.data(), scratch.up.data(), static_cast<int64_t>(rows_) * ffn, scratch.gate.data());
  return step_.backend.Prepare(scratch.gate.data(), rows_, ffn, ffn, scratch.inner_storage);
}

void ExpertBlock::Down(LayerId layer, const Activations& inner) {
  std::span<Member> rest = members();
  while (!rest.empty()) {
    auto waiting =
        std::partition(rest.begin(), rest.end(), [](const Member& m) { return m.ready.handle.Has(ExpertPart::kDown); });
    if (waiting == rest.begin()) ++waiting;  // nothing is there: wait for one
    std::span<Member> some(rest.begin(), waiting);
    for (Member& member : some) {
      const absl::Status status = member.ready.handle.Part(ExpertPart::kDown).status();
      if (!status.ok()) Fail(member.slots, status);
      step_.scratch.delivered[member.ready.expert] = status.ok();
    }
    const TraceSpan span(step_.trace, "expert", kComputeTrack, layer, some[0].ready.expert);
    DownOf(some, inner);
    rest = std::span<Member>(waiting, rest.end());
  }
}

void ExpertBlock::DownOf(std::span<Member> some, const Activations& inner) {
  Scratch& scratch = step_.scratch;
  const int hidden = step_.spec.hidden;
  std::array<Activations, kGroupRows> inputs;
  std::array<MatMulJob, kGroupRows> jobs;
  size_t used = 0;
  for (const Member& member : some) {
    if (scratch.delivered[member.ready.expert] == 0) continue;
    const FormatId format = step_.expert_formats[member.ready.precision];
    const std::byte* down = member.ready.handle.Part(ExpertPart::kDown)->data();
    const size_t place = member.slots.data() - scratch.expert_slots.data();
    inputs[used] = Rows(inner, member.first_row, member.rows());
    jobs[used] = {{format, hidden, step_.spec.expert_ffn, down}, &inputs[used], &scratch.slots[place * hidden], hidden};
    ++used;
  }
  if (used > 0) step_.backend.MatMul(std::span(jobs).first(used));
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
