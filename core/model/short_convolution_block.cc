#include "core/model/short_convolution_block.h"

#include "core/model/state_runs.h"

namespace moed {

// Blocks in order: a chunk's rows of one block leave the state for those of the next.
void ShortConvolutionBlock::Run(LayerId layer, const LayerWeights& weights) {
  const TraceSpan span(step_.trace, "attention", kComputeTrack, layer);
  step_.ForBlocks([&](RowBlock block) {
    Project(weights, block);
    Convolve(layer, weights, block);
    step_.ProjectAttended(weights.o, nullptr, block);
  });
}

void ShortConvolutionBlock::Project(const LayerWeights& weights, RowBlock block) {
  Scratch& scratch = step_.scratch;
  ComputeBackend& backend = step_.backend;
  const int hidden = step_.spec.hidden;
  const Activations input = step_.MixerInput(weights, block, {weights.k.format, weights.v.format, weights.attention_gate.format});
  MatMulJob jobs[] = {
      {weights.k, &input, scratch.mixed.data(), hidden},
      {weights.v, &input, scratch.convolved.data(), hidden},
      {weights.attention_gate, &input, scratch.attention_gate.data(), hidden},
  };
  step_.Multiply(jobs);
  backend.Multiply(scratch.mixed.data(), scratch.convolved.data(), int64_t{block.count} * hidden);
}

void ShortConvolutionBlock::Convolve(LayerId layer, const LayerWeights& weights, RowBlock block) {
  Scratch& scratch = step_.scratch;
  const int hidden = step_.spec.hidden;
  const ConvolutionShape shape = {.channels = hidden, .taps = step_.spec.short_convolution->taps, .bias = nullptr, .silu = false};
  step_.backend.Convolve(shape, PlanStateRuns(step_, layer, block, 0), scratch.mixed.data(), weights.convolution,
                         scratch.attended.data());
  step_.backend.Multiply(scratch.attended.data(), scratch.attention_gate.data(), int64_t{block.count} * hidden);
}

}  // namespace moed
