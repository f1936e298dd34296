#include "core/model/ffn_block.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/model/router.h"

namespace moed {

Activations FfnBlock::NormalizeInput(const LayerWeights& weights) {
  Scratch& scratch = step_.scratch;
  const int rows = step_.batch.rows();
  const int hidden = step_.spec.hidden;
  step_.backend.RmsNorm(scratch.x.data(), weights.ffn_norm, step_.spec.rms_eps, rows, hidden, scratch.normed.data());
  return step_.backend.Prepare(scratch.normed.data(), rows, hidden, hidden, scratch.normed_storage);
}

Activations FfnBlock::GateAndUp(const MatrixView& gate, const MatrixView& up, const Activations& input) {
  Scratch& scratch = step_.scratch;
  const int ffn = gate.rows;
  const MatMulJob jobs[] = {{gate, &input, scratch.gate.data(), ffn}, {up, &input, scratch.up.data(), ffn}};
  step_.backend.MatMul(jobs);
  step_.backend.SwiGlu(scratch.gate.data(), scratch.up.data(), static_cast<int64_t>(input.tokens) * ffn, scratch.gate.data());
  return step_.backend.Prepare(scratch.gate.data(), input.tokens, ffn, ffn, scratch.inner_storage);
}

void FfnBlock::Down(const MatrixView& down, const Activations& inner, float* output) {
  const MatMulJob jobs[] = {{down, &inner, output, step_.spec.hidden}};
  step_.backend.MatMul(jobs);
}

void FfnBlock::RunDense(LayerId layer, const LayerWeights& weights) {
  const TraceSpan span(step_.trace, "dense", kComputeTrack, layer);
  Scratch& scratch = step_.scratch;
  const Activations input = NormalizeInput(weights);
  Down(weights.dense.down, GateAndUp(weights.dense.gate, weights.dense.up, input), scratch.projected.data());
  step_.backend.Add(scratch.x.data(), scratch.projected.data(), static_cast<int64_t>(step_.batch.rows()) * step_.spec.hidden);
}

void FfnBlock::RunExperts(LayerId layer, const LayerWeights& weights, ExpertProvider& provider) {
  Scratch& scratch = step_.scratch;
  const Activations input = NormalizeInput(weights);
  {
    const TraceSpan span(step_.trace, "router", kComputeTrack, layer);
    Route(layer, weights, input, provider);
  }
  provider.Begin({layer, scratch.routing.first(step_.batch.rows())});
  ComputeShared(layer, weights, input);  // while the reads that Begin queued are under way
  while (std::optional<ReadyExpert> ready = provider.Next()) {
    const std::span<const int32_t> slots = SlotsOf(ready->expert);
    const absl::Status status = ComputeExpert(layer, *ready, slots, input);
    if (!status.ok()) Fail(slots, status);
  }
  Combine();
  step_.batch.DropFailed(scratch.x.data(), step_.spec.hidden);
}

void FfnBlock::Route(LayerId layer, const LayerWeights& weights, const Activations& input, ExpertProvider& provider) {
  Scratch& scratch = step_.scratch;
  const int hidden = step_.spec.hidden;
  const int experts = step_.spec.experts;
  for (const BatchChunk& chunk : step_.batch.chunks()) {
    const int64_t row = static_cast<int64_t>(chunk.last_row()) * hidden;
    provider.OnGateInput(chunk.chunk->session, layer, scratch.normed.subspan(row, hidden));
  }
  const MatMulJob jobs[] = {{weights.router, &input, scratch.router.data(), experts},
                            {weights.shared_gate, &input, scratch.shared_gate.data(), 1}};
  step_.backend.MatMul(std::span(jobs).first(step_.spec.shared_gate ? 2 : 1));
  for (int row = 0; row < step_.batch.rows(); ++row) {
    provider.MaskRouter(layer, scratch.router.subspan(static_cast<size_t>(row) * experts, experts));
  }
  step_.backend.Softmax(scratch.router.data(), step_.batch.rows(), experts);
  ChooseForAllTokens();
}

void FfnBlock::ChooseForAllTokens() {
  Scratch& scratch = step_.scratch;
  const Batch& batch = step_.batch;
  const size_t top_k = step_.spec.top_k;
  const size_t experts = step_.spec.experts;
  for (int row = 0; row < batch.rows(); ++row) {
    const std::span<ExpertChoice> choices = scratch.choices.subspan(row * top_k, top_k);
    ChooseExperts(scratch.router.subspan(row * experts, experts), step_.spec.norm_topk_prob, choices);
    const SequenceChunk& chunk = *batch.chunk_of(row).chunk;
    scratch.routing[row] = {chunk.session, batch.token_of(row), chunk.phase, choices};
  }
  const size_t slots = batch.rows() * top_k;
  GroupByExpert(scratch.choices.first(slots), scratch.expert_begin, scratch.expert_slots.first(slots));
  std::fill(scratch.delivered.begin(), scratch.delivered.end(), 0);
}

std::span<const int32_t> FfnBlock::SlotsOf(int32_t expert) const {
  const Scratch& scratch = step_.scratch;
  MOED_CHECK(expert >= 0 && expert < step_.spec.experts);
  const int32_t begin = scratch.expert_begin[expert];
  return scratch.expert_slots.subspan(begin, scratch.expert_begin[expert + 1] - begin);
}

void FfnBlock::ComputeShared(LayerId layer, const LayerWeights& weights, const Activations& input) {
  if (step_.spec.shared_ffn == 0) return;
  const TraceSpan span(step_.trace, "shared expert", kComputeTrack, layer);
  Down(weights.shared.down, GateAndUp(weights.shared.gate, weights.shared.up, input), step_.scratch.shared.data());
}

Activations FfnBlock::Gather(std::span<const int32_t> slots, const Activations& input) {
  // A token chooses an expert once, so these are all tokens in their order.
  if (static_cast<int>(slots.size()) == input.tokens) return input;
  Scratch& scratch = step_.scratch;
  const int hidden = step_.spec.hidden;
  float* to = scratch.projected.data();
  for (int32_t slot : slots) {
    to = std::copy_n(&scratch.normed[static_cast<size_t>(slot / step_.spec.top_k) * hidden], hidden, to);
  }
  return step_.backend.Prepare(scratch.projected.data(), static_cast<int>(slots.size()), hidden, hidden, scratch.inner_storage);
}

// Two spans in the trace, so that waiting for the last part does not look like computing.
absl::Status FfnBlock::ComputeExpert(LayerId layer, const ReadyExpert& ready, std::span<const int32_t> slots,
                                     const Activations& input) {
  MOED_RETURN_IF_ERROR(ready.status);
  Scratch& scratch = step_.scratch;
  const int hidden = step_.spec.hidden;
  const int ffn = step_.spec.expert_ffn;
  const FormatId format = step_.expert_formats[ready.precision];
  MOED_ASSIGN_OR_RETURN(const std::span<const std::byte> gate, ready.handle.Part(ExpertPart::kGate));
  MOED_ASSIGN_OR_RETURN(const std::span<const std::byte> up, ready.handle.Part(ExpertPart::kUp));
  Activations inner;
  {
    const TraceSpan span(step_.trace, "expert", kComputeTrack, layer, ready.expert);
    inner = GateAndUp({format, ffn, hidden, gate.data()}, {format, ffn, hidden, up.data()}, Gather(slots, input));
  }
  MOED_ASSIGN_OR_RETURN(const std::span<const std::byte> down, ready.handle.Part(ExpertPart::kDown));
  const TraceSpan span(step_.trace, "expert", kComputeTrack, layer, ready.expert);
  Down({format, hidden, ffn, down.data()}, inner, scratch.projected.data());
  const float* from = scratch.projected.data();
  for (int32_t slot : slots) {
    std::copy_n(from, hidden, &scratch.slots[static_cast<size_t>(slot) * hidden]);
    from += hidden;
  }
  scratch.delivered[ready.expert] = 1;
  return absl::OkStatus();
}

void FfnBlock::Fail(std::span<const int32_t> slots, const absl::Status& status) {
  for (int32_t slot : slots) step_.batch.chunk_of(slot / step_.spec.top_k).chunk->status.Update(status);
}

// Slot order, whatever the order of arrival was. An expert that was not delivered was skipped by the provider's fidelity rule, or
// its tokens leave the batch: it adds nothing.
void FfnBlock::Combine() {
  Scratch& scratch = step_.scratch;
  const int hidden = step_.spec.hidden;
  const int top_k = step_.spec.top_k;
  for (int row = 0; row < step_.batch.rows(); ++row) {
    float* x = &scratch.x[static_cast<size_t>(row) * hidden];
    for (int slot = row * top_k; slot < (row + 1) * top_k; ++slot) {
      const ExpertChoice& choice = scratch.choices[slot];
      if (scratch.delivered[choice.expert] == 0) continue;
      step_.backend.AddScaled(x, &scratch.slots[static_cast<size_t>(slot) * hidden], choice.probability, hidden);
    }
    if (step_.spec.shared_ffn == 0) continue;
    const float* shared = &scratch.shared[static_cast<size_t>(row) * hidden];
    const float weight = step_.spec.shared_gate ? step_.backend.Sigmoid(scratch.shared_gate[row]) : 1.0f;
    step_.backend.AddScaled(x, shared, weight, hidden);
  }
}

}  // namespace moed
