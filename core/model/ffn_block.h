// x += ffn(ffn_norm(x)): a dense block, or the routed experts of a layer with its shared expert.
#pragma once

#include "core/expert/provider.h"
#include "core/model/expert_block.h"
#include "core/model/step.h"
#include "core/model/weights.h"

namespace moed {

class FfnBlock {
 public:
  explicit FfnBlock(Step& step) : step_(step), experts_(step) {}

  void RunDense(LayerId layer, const LayerWeights& weights);
  // Chunks whose tokens chose an expert that could not be read leave the batch with its error.
  void RunExperts(LayerId layer, const LayerWeights& weights, ExpertProvider& provider);

 private:
  // The prepared ffn_norm(x) of a block of rows; valid until the next one.
  Activations NormalizeInput(const LayerWeights& weights, RowBlock block);
  void Route(LayerId layer, const LayerWeights& weights, RowBlock block, const Activations& input, ExpertProvider& provider);
  void ChooseForAllTokens();
  // To scratch.shared.
  void ComputeShared(LayerId layer, const LayerWeights& weights, RowBlock block, const Activations& input);
  void Combine(LayerId layer);

  // silu(gate x) * (up x), prepared as the input of down.
  Activations GateAndUp(const MatrixView& gate, const MatrixView& up, const Activations& input);
  void Down(const MatrixView& down, const Activations& inner, float* output);  // output (tokens, hidden)

  Step& step_;
  ExpertBlock experts_;
};

}  // namespace moed
