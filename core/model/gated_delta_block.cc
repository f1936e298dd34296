#include "core/model/gated_delta_block.h"

#include <algorithm>
#include <cmath>

#include "core/model/state_runs.h"

namespace moed {
namespace {

constexpr float kLengthEpsilon = 1e-6f;  // added to the squared length of queries and keys

}  // namespace

GatedDeltaBlock::GatedDeltaBlock(Step& step) : step_(step) {
  if (!step.spec.delta_net) return;
  const Scratch& scratch = step.scratch;
  std::ranges::fill(scratch.unit_on_host, static_cast<float>(1 / std::sqrt(static_cast<double>(shape().key_dim))));
  if (scratch.unit_on_host.data() == scratch.unit.data()) return;
  step.backend.memory().Copy(scratch.unit.data(), scratch.unit_on_host.data(), scratch.unit.size_bytes());
  step.Fence().IgnoreError();  // every later one tells it
}

// Blocks in order: a chunk's rows of one block leave the state for those of the next.
void GatedDeltaBlock::Run(LayerId layer, const LayerWeights& weights) {
  const TraceSpan span(step_.trace, "attention", kComputeTrack, layer);
  step_.ForBlocks([&](RowBlock block) {
    Project(weights, block);
    Convolve(weights, block, PlanStateRuns(step_, layer, block, 0));
    ReadStates(weights, block, PlanStateRuns(step_, layer, block, shape().recurrence().InputFloats()));
    step_.ProjectAttended(weights.o, nullptr, block);
  });
}

void GatedDeltaBlock::Project(const LayerWeights& weights, RowBlock block) {
  Scratch& scratch = step_.scratch;
  const int heads = shape().value_heads, rank = shape().gate_rank;
  const int key_width = shape().KeyWidth(), mixed_width = shape().ConvolvedWidth();
  const MatrixView& gate = rank > 0 ? weights.delta.gate_in : weights.attention_gate;
  const MatrixView& a = rank > 0 ? weights.delta.a_in : weights.delta.a;
  float* const of_gates = &scratch.gate_ranks.data()[int64_t{block.count} * rank];
  const Activations input = step_.MixerInput(
      weights, block, {weights.q.format, weights.k.format, weights.v.format, gate.format, a.format, weights.delta.b.format});
  float* mixed = scratch.mixed.data();
  MatMulJob jobs[] = {
      {weights.q, &input, mixed, mixed_width},
      {weights.k, &input, mixed + key_width, mixed_width},
      {weights.v, &input, mixed + 2 * key_width, mixed_width},
      {gate, &input, rank > 0 ? of_gates : scratch.attention_gate.data(), gate.rows},
      {a, &input, rank > 0 ? scratch.gate_ranks.data() : scratch.decay.data(), a.rows},
      {weights.delta.b, &input, scratch.rate.data(), heads},
  };
  step_.Multiply(jobs, 2);
  if (rank > 0) ProjectGates(weights, block);
  step_.backend.DeltaGates(scratch.decay.data(), scratch.rate.data(), weights.delta.bias, weights.delta.decay_rate, block.count,
                           heads, shape().Decays() / heads);
}

void GatedDeltaBlock::ProjectGates(const LayerWeights& weights, RowBlock block) {
  Scratch& scratch = step_.scratch;
  const int rank = shape().gate_rank;
  const auto project = [&](const MatrixView& matrix, const float* input, float* output, size_t exact) {
    const Activations prepared =
        step_.backend.Prepare(input, block.count, rank, rank, InputForms::Of({matrix.format}), scratch.inner_storage);
    MatMulJob jobs[] = {{matrix, &prepared, output, matrix.rows}};
    step_.Multiply(jobs, exact);
  };
  const float* const ranks = scratch.gate_ranks.data();
  project(weights.delta.a, ranks, scratch.decay.data(), 1);
  project(weights.attention_gate, ranks + int64_t{block.count} * rank, scratch.attention_gate.data(), 0);
}

void GatedDeltaBlock::Convolve(const LayerWeights& weights, RowBlock block, std::span<const StateRun> runs) {
  Scratch& scratch = step_.scratch;
  const int width = shape().ConvolvedWidth(), dim = shape().key_dim;
  step_.backend.Convolve({width, shape().taps}, runs, scratch.mixed.data(), weights.convolution, scratch.convolved.data());
  const Norm norm = {.weight = scratch.unit.data(), .eps = kLengthEpsilon / static_cast<float>(dim)};
  for (int row = 0; row < block.count; ++row) {
    float* heads = &scratch.convolved[static_cast<size_t>(row) * width];
    step_.backend.Normalize(norm, heads, 2 * shape().key_heads, dim, heads);
  }
}

void GatedDeltaBlock::ReadStates(const LayerWeights& weights, RowBlock block, std::span<const StateRun> runs) {
  Scratch& scratch = step_.scratch;
  ComputeBackend& backend = step_.backend;
  const DeltaRuleShape rule = {.key_heads = shape().key_heads,
                               .value_heads = shape().value_heads,
                               .key_dim = shape().key_dim,
                               .value_dim = shape().value_dim,
                               .scale = scratch.unit_on_host[0],
                               .key_heads_in_turn = shape().key_heads_in_turn,
                               .decay_by_channel = shape().DecaysByChannel()};
  float* read = scratch.attended.data();
  backend.DeltaRule(rule, runs, scratch.convolved.data(), scratch.decay.data(), scratch.rate.data(), read);
  backend.Normalize({.weight = weights.delta.norm, .eps = step_.spec.rms_eps}, read, block.count * rule.value_heads,
                    rule.value_dim, read);
  const int64_t read_floats = block.count * rule.output_row();
  if (shape().DecaysByChannel()) return backend.SigmoidGate(read, scratch.attention_gate.data(), read_floats);
  backend.Activate({GateFunction::kSwiGlu}, scratch.attention_gate.data(), read, read_floats, read);
}

}  // namespace moed
