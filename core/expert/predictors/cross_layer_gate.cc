// Fate (arXiv 2502.12224), section 4.2: gate inputs of neighbouring layers are alike, so the next layer's gate applied to this
// layer's input names the next layer's experts. Taking every expert above the 75th percentile of the predicted weights, and not
// only the top k, is what raises the recall.
#include "core/expert/predictors/cross_layer_gate.h"

#include <algorithm>
#include <vector>

#include "core/base/check.h"
#include "core/expert/predictors/gate_guesses.h"

namespace moed {
namespace {

class CrossLayerGatePredictor final : public ExpertPredictor {
 public:
  explicit CrossLayerGatePredictor(const PartContext& context)
      : layers_(context.model.moe_layers.begin(), context.model.moe_layers.end()),
        gate_(context.gate),
        inputs_(context.hidden),
        probabilities_(static_cast<size_t>(context.model.experts_per_layer)),
        ordered_(probabilities_.size()) {
    MOED_CHECK(gate_ != nullptr);
  }

  void OnSequenceStart(SequenceId sequence) override { inputs_.Start(sequence); }
  void OnSequenceEnd(SequenceId sequence) override { inputs_.End(sequence); }
  void OnGateInput(SequenceId sequence, LayerId layer, std::span<const float> hidden) override {
    inputs_.Set(sequence, layer, hidden);
  }

  void Predict(SequenceId sequence, LayerId from, std::vector<Guess>& best_first) override {
    const std::span<const float> input = inputs_.At(sequence, from);
    const auto next = std::upper_bound(layers_.begin(), layers_.end(), from);
    if (input.empty() || next == layers_.end()) return;
    gate_(*next, input, probabilities_);
    std::ranges::copy(probabilities_, ordered_.begin());
    const float threshold = UpperQuartile(ordered_);
    const size_t first = best_first.size();
    for (size_t expert = 0; expert < probabilities_.size(); ++expert) {
      if (probabilities_[expert] > threshold) {
        best_first.push_back({{*next, static_cast<int32_t>(expert)}, probabilities_[expert], 1});
      }
    }
    SortBestFirst(std::span(best_first).subspan(first));
  }

  size_t memory_bytes() const override { return inputs_.memory_bytes() + 2 * probabilities_.size() * sizeof(float); }

 private:
  const std::vector<LayerId> layers_;
  const GateFn gate_;
  GateInputs inputs_;
  // Scratch of Predict, which runs on the engine's thread alone. (experts)
  std::vector<float> probabilities_;
  std::vector<float> ordered_;
};

}  // namespace

std::unique_ptr<ExpertPredictor> MakeCrossLayerGatePredictor(const PartContext& context) {
  return std::make_unique<CrossLayerGatePredictor>(context);
}

PartMemory CrossLayerGateMemory(const PartContext& context, const PartOptions&) {
  return {.fixed_bytes = 2 * static_cast<size_t>(context.model.experts_per_layer) * sizeof(float),
          .sequence_bytes = GateInputs::SequenceBytes(context.hidden)};
}

}  // namespace moed
