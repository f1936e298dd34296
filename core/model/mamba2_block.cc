#include "core/model/mamba2_block.h"

#include "core/model/state_runs.h"

namespace moed {

// Blocks in order: a chunk's rows of one block leave the state for those of the next.
void Mamba2Block::Run(LayerId layer, const LayerWeights& weights) {
  const TraceSpan span(step_.trace, "attention", kComputeTrack, layer);
  step_.ForBlocks([&](RowBlock block) {
    Project(weights, block);
    ReadStates(layer, weights, block);
    GateAndNormalize(weights, block);
    step_.ProjectAttended(weights.o, nullptr, block);
  });
}

void Mamba2Block::Project(const LayerWeights& weights, RowBlock block) {
  Scratch& scratch = step_.scratch;
  ComputeBackend& backend = step_.backend;
  const int mixed_width = shape().ConvolvedWidth();
  const Activations input = step_.MixerInput(
      weights, block,
      {weights.q.format, weights.k.format, weights.v.format, weights.attention_gate.format, weights.mamba2.step.format});
  float* mixed = scratch.mixed.data();
  // Exact always: a state multiplies what three of these put out.
  const MatMulJob jobs[] = {
      {weights.v, &input, mixed, mixed_width},
      {weights.k, &input, mixed + shape().Width(), mixed_width},
      {weights.q, &input, mixed + shape().Width() + shape().GroupsWidth(), mixed_width},
      {weights.attention_gate, &input, scratch.attention_gate.data(), shape().Width()},
      {weights.mamba2.step, &input, scratch.rate.data(), shape().heads},
  };
  backend.MatMul(jobs);
  backend.StepSizes(scratch.rate.data(), weights.mamba2.step_bias, weights.mamba2.decay_rate, block.count, shape().heads,
                    scratch.decay.data());
}

void Mamba2Block::ReadStates(LayerId layer, const LayerWeights& weights, RowBlock block) {
  Scratch& scratch = step_.scratch;
  const ConvolutionShape convolution = {
      .channels = shape().ConvolvedWidth(), .taps = shape().taps, .bias = weights.mamba2.convolution_bias};
  step_.backend.Convolve(convolution, PlanStateRuns(step_, layer, block, 0), scratch.mixed.data(), weights.convolution,
                         scratch.convolved.data());
  const StateSpaceShape states = {
      .key_heads = shape().groups, .value_heads = shape().heads, .key_dim = shape().state_dim, .value_dim = shape().head_dim};
  const std::span<const StateRun> runs = PlanStateRuns(step_, layer, block, shape().recurrence().InputFloats());
  step_.backend.StateSpace(states, runs, scratch.convolved.data(), scratch.decay.data(), scratch.rate.data(), weights.mamba2.skip,
                           scratch.attended.data());
}

void Mamba2Block::GateAndNormalize(const LayerWeights& weights, RowBlock block) {
  ComputeBackend& backend = step_.backend;
  float* read = step_.scratch.attended.data();
  const int width = shape().Width(), groups = shape().groups, cols = width / groups;
  backend.Activate({GateFunction::kSwiGlu}, step_.scratch.attention_gate.data(), read, int64_t{block.count} * width, read);
  Norm norm = {.weight = weights.mamba2.norm, .eps = step_.spec.rms_eps};
  if (groups == 1) return backend.Normalize(norm, read, block.count, width, read);
  for (int row = 0; row < block.count; ++row) {
    for (int group = 0; group < groups; ++group) {
      float* x = read + int64_t{row} * width + group * cols;
      norm.weight = weights.mamba2.norm + group * cols;
      backend.Normalize(norm, x, 1, cols, x);
    }
  }
}

}  // namespace moed
