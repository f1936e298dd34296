// x += o(silu(gate) * norm(delta_rule(convolution(qkv(attn_norm(x)))))), step by step: a layer with a state in place of
// attention. Or Kimi Delta Attention, see DeltaNetShape.
#pragma once

#include <span>

#include "core/model/step.h"
#include "core/model/weights.h"

namespace moed {

class GatedDeltaBlock {
 public:
  // Outlives the block, which fills scratch.unit.
  explicit GatedDeltaBlock(Step& step);
  // `layer`: a recurrent one.
  void Run(LayerId layer, const LayerWeights& weights);

 private:
  // To scratch.mixed, attention_gate, decay and rate.
  void Project(const LayerWeights& weights, RowBlock block);
  // What the decays and the gates of Kimi Delta Attention are, of what they are made of.
  void ProjectGates(const LayerWeights& weights, RowBlock block);
  // scratch.convolved = queries and keys of length 1, and values.
  void Convolve(const LayerWeights& weights, RowBlock block, std::span<const StateRun> runs);
  void ReadStates(const LayerWeights& weights, RowBlock block, std::span<const StateRun> runs);

  const DeltaNetShape& shape() const { return *step_.spec.delta_net; }

  Step& step_;
};

}  // namespace moed
