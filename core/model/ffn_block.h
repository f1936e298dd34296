// x += ffn(ffn_norm(x)): a dense block, or the routed experts of a layer with its shared expert.
#pragma once

#include "core/expert/provider.h"
#include "core/model/step.h"
#include "core/model/weights.h"

namespace moed {

class FfnBlock {
 public:
  explicit FfnBlock(Step& step) : step_(step) {}

  void RunDense(LayerId layer, const LayerWeights& weights);
  // Chunks whose tokens chose an expert that could not be read leave the batch with its error.
  void RunExperts(LayerId layer, const LayerWeights& weights, ExpertProvider& provider);

 private:
  Activations NormalizeInput(const LayerWeights& weights);
  void Route(LayerId layer, const LayerWeights& weights, const Activations& input, ExpertProvider& provider);
  void ChooseForAllTokens();
  void ComputeShared(LayerId layer, const LayerWeights& weights, const Activations& input);
  absl::Status ComputeExpert(LayerId layer, const ReadyExpert& ready, std::span<const int32_t> slots, const Activations& input);
  // The inputs of the tokens that chose an expert.
  Activations Gather(std::span<const int32_t> slots, const Activations& input);
  void Fail(std::span<const int32_t> slots, const absl::Status& status);
  void Combine();

  // silu(gate x) * (up x), prepared as the input of down.
  Activations GateAndUp(const MatrixView& gate, const MatrixView& up, const Activations& input);
  void Down(const MatrixView& down, const Activations& inner, float* output);  // output (tokens, hidden)

  std::span<const int32_t> SlotsOf(int32_t expert) const;

  Step& step_;
};

}  // namespace moed
