// x += o(gate * convolution(k * v)), of k, v, gate = projections of attn_norm(x): a layer whose state is the last inputs of its
// convolution.
#pragma once

#include "core/model/step.h"
#include "core/model/weights.h"

namespace moed {

class ShortConvolutionBlock {
 public:
  // Outlives the block.
  explicit ShortConvolutionBlock(Step& step) : step_(step) {}
  // `layer`: a recurrent one.
  void Run(LayerId layer, const LayerWeights& weights);

 private:
  // scratch.mixed = k * v; scratch.attention_gate.
  void Project(const LayerWeights& weights, RowBlock block);
  // scratch.attended.
  void Convolve(LayerId layer, const LayerWeights& weights, RowBlock block);

  Step& step_;
};

}  // namespace moed
