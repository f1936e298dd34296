#include "core/model/ffn_block.h"

#include <algorithm>

#include "core/model/router.h"

namespace moed {

Activations FfnBlock::NormalizeInput(const LayerWeights& weights, RowBlock block) {
  Scratch& scratch = step_.scratch;
  const int hidden = step_.spec.hidden;
  const float* x = &scratch.x[static_cast<size_t>(block.begin) * hidden];
  step_.backend.RmsNorm(x, weights.ffn_norm, step_.spec.rms_eps, block.count, hidden, scratch.normed.data());
  return step_.backend.Prepare(scratch.normed.data(), block.count, hidden, hidden, scratch.normed_storage);
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
  const int64_t hidden = step_.spec.hidden;
  step_.ForBlocks([&](RowBlock block) {
    const Activations input = NormalizeInput(weights, block);
    Down(weights.dense.down, GateAndUp(weights.dense.gate, weights.dense.up, input), scratch.projected.data());
    step_.backend.Add(&scratch.x[block.begin * hidden], scratch.projected.data(), block.count * hidden);
  });
}

void FfnBlock::RunExperts(LayerId layer, const LayerWeights& weights, ExpertProvider& provider) {
  Activations input;  // of the last block
  step_.ForBlocks([&](RowBlock block) {
    const TraceSpan span(step_.trace, "router", kComputeTrack, layer);
    input = NormalizeInput(weights, block);
    Route(layer, weights, block, input, provider);
  });
  ChooseForAllTokens();
  provider.Begin({layer, step_.scratch.routing.first(step_.batch.rows())});
  if (step_.spec.shared_ffn > 0) {  // while the reads that Begin queued are under way
    step_.ForBlocks([&](RowBlock block) {
      ComputeShared(layer, weights, block, step_.one_block() ? input : NormalizeInput(weights, block));
    });
  }
  experts_.Run(layer, weights.ffn_norm, step_.one_block() ? &input : nullptr, provider);
  Combine(layer);
  step_.batch.DropFailed(step_.scratch.x.data(), step_.spec.hidden);
}

void FfnBlock::Route(LayerId layer, const LayerWeights& weights, RowBlock block, const Activations& input,
                     ExpertProvider& provider) {
  Scratch& scratch = step_.scratch;
  const int hidden = step_.spec.hidden;
  const int experts = step_.spec.experts;
  for (const BatchChunk& chunk : step_.batch.chunks()) {
    const int row = chunk.last_row() - block.begin;
    if (row < 0 || row >= block.count) continue;
    provider.OnGateInput(chunk.chunk->sequence, layer, scratch.normed.subspan(static_cast<size_t>(row) * hidden, hidden));
  }
  float* router = &scratch.router[static_cast<size_t>(block.begin) * experts];
  float* shared_gate = step_.spec.shared_gate ? &scratch.shared_gate[block.begin] : nullptr;
  const MatMulJob jobs[] = {{weights.router, &input, router, experts}, {weights.shared_gate, &input, shared_gate, 1}};
  step_.backend.MatMul(std::span(jobs).first(step_.spec.shared_gate ? 2 : 1));
  for (int row = 0; row < block.count; ++row) {
    const SequenceChunk& chunk = *step_.batch.chunk_of(block.begin + row).chunk;
    TokenRouting& token = scratch.routing[block.begin + row];
    token = {.sequence = chunk.sequence,
             .token = step_.batch.token_of(block.begin + row),
             .phase = chunk.phase,
             .may_lose = chunk.may_lose};
    provider.MaskRouter(layer, scratch.normed.subspan(static_cast<size_t>(row) * hidden, hidden),
                        std::span(router + static_cast<size_t>(row) * experts, experts), token);
  }
  step_.backend.Softmax(router, block.count, experts);
}

void FfnBlock::ChooseForAllTokens() {
  Scratch& scratch = step_.scratch;
  const Batch& batch = step_.batch;
  const size_t top_k = step_.spec.top_k;
  const size_t experts = step_.spec.experts;
  for (int row = 0; row < batch.rows(); ++row) {
    const std::span<ExpertChoice> choices = scratch.choices.subspan(row * top_k, top_k);
    ChooseExperts(scratch.router.subspan(row * experts, experts), step_.spec.norm_topk_prob, choices);
    scratch.routing[row].choices = choices;
  }
  const size_t slots = batch.rows() * top_k;
  GroupByExpert(scratch.choices.first(slots), scratch.expert_begin, scratch.expert_slots.first(slots));
  for (size_t place = 0; place < slots; ++place) scratch.slot_places[scratch.expert_slots[place]] = static_cast<int32_t>(place);
}

void FfnBlock::ComputeShared(LayerId layer, const LayerWeights& weights, RowBlock block, const Activations& input) {
  const TraceSpan span(step_.trace, "shared expert", kComputeTrack, layer);
  float* output = &step_.scratch.shared[static_cast<size_t>(block.begin) * step_.spec.hidden];
  Down(weights.shared.down, GateAndUp(weights.shared.gate, weights.shared.up, input), output);
}

// Slot order, whatever the order of arrival was. An expert that was not delivered was skipped by the provider's fidelity rule, or
// its tokens leave the batch: it adds nothing.
void FfnBlock::Combine(LayerId layer) {
  const TraceSpan span(step_.trace, "combine", kComputeTrack, layer);
  Scratch& scratch = step_.scratch;
  const int hidden = step_.spec.hidden;
  const int top_k = step_.spec.top_k;
  for (int row = 0; row < step_.batch.rows(); ++row) {
    float* x = &scratch.x[static_cast<size_t>(row) * hidden];
    for (int slot = row * top_k; slot < (row + 1) * top_k; ++slot) {
      const ExpertChoice& choice = scratch.choices[slot];
      if (scratch.delivered[choice.expert] == 0) continue;
      const float* output = &scratch.slots[static_cast<size_t>(scratch.slot_places[slot]) * hidden];
      step_.backend.AddScaled(x, output, choice.probability, hidden);
    }
    if (step_.spec.shared_ffn == 0) continue;
    const float* shared = &scratch.shared[static_cast<size_t>(row) * hidden];
    const float weight = step_.spec.shared_gate ? step_.backend.Sigmoid(scratch.shared_gate[row]) : 1.0f;
    step_.backend.AddScaled(x, shared, weight, hidden);
  }
}

}  // namespace moed
