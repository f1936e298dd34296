// x += o(norm(silu(gate) * state_space(convolution(vkq(attn_norm(x)))))), step by step: a layer of Mamba-2.
#pragma once

#include <span>

#include "core/model/step.h"
#include "core/model/weights.h"

namespace moed {

class Mamba2Block {
 public:
  // Outlives the block.
  explicit Mamba2Block(Step& step) : step_(step) {}
  // `layer`: a recurrent one.
  void Run(LayerId layer, const LayerWeights& weights);

 private:
  // To scratch.mixed, attention_gate, rate (the step sizes) and decay.
  void Project(const LayerWeights& weights, RowBlock block);
  // To scratch.attended.
  void ReadStates(LayerId layer, const LayerWeights& weights, RowBlock block);
  // scratch.attended: gated, then each group's numbers normed.
  void GateAndNormalize(const LayerWeights& weights, RowBlock block);

  const Mamba2Shape& shape() const { return *step_.spec.mamba2; }

  Step& step_;
};

}  // namespace moed
