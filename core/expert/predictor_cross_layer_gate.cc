// Fate (arXiv 2502.12224), section 3.2: gate inputs of neighbouring layers are alike, so the next layer's gate applied to this
// layer's input names the next layer's experts. Taking every expert above the 75th percentile of the predicted weights, and not
// only the top k, is what raises the recall.
#include "core/expert/predictor_cross_layer_gate.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/base/check.h"

namespace moed {
namespace {

// By linear interpolation between the two nearest ranks. `values` is reordered.
float UpperQuartile(std::span<float> values) {
  const size_t scaled = 3 * (values.size() - 1);
  const auto lower = values.begin() + scaled / 4;
  std::nth_element(values.begin(), lower, values.end());
  if (scaled % 4 == 0) return *lower;
  const float above = *std::min_element(lower + 1, values.end());
  return *lower + (above - *lower) * static_cast<float>(scaled % 4) / 4;
}

class CrossLayerGatePredictor final : public ExpertPredictor {
 public:
  explicit CrossLayerGatePredictor(const PredictorContext& context)
      : layers_(context.model.moe_layers.begin(), context.model.moe_layers.end()),
        hidden_(context.hidden),
        gate_(context.gate),
        probabilities_(context.model.experts_per_layer),
        ordered_(context.model.experts_per_layer) {
    MOED_CHECK(gate_ != nullptr && hidden_ > 0);
  }

  void OnSequenceStart(SessionId session) override { inputs_[session].hidden.resize(hidden_); }
  void OnSequenceEnd(SessionId session) override { inputs_.erase(session); }
  void OnGateInput(SessionId session, LayerId layer, std::span<const float> hidden) override {
    const auto input = inputs_.find(session);
    MOED_CHECK(input != inputs_.end() && hidden.size() == input->second.hidden.size());
    input->second.layer = layer;
    std::copy(hidden.begin(), hidden.end(), input->second.hidden.begin());
  }

  void Predict(SessionId session, LayerId from, std::vector<Guess>& best_first) override {
    const auto input = inputs_.find(session);
    if (input == inputs_.end() || input->second.layer != from) return;
    const auto next = std::upper_bound(layers_.begin(), layers_.end(), from);
    if (next == layers_.end()) return;
    gate_(*next, input->second.hidden, probabilities_);
    std::copy(probabilities_.begin(), probabilities_.end(), ordered_.begin());
    const float threshold = UpperQuartile(ordered_);
    const size_t first = best_first.size();
    for (size_t expert = 0; expert < probabilities_.size(); ++expert) {
      if (probabilities_[expert] > threshold) {
        best_first.push_back({{*next, static_cast<int32_t>(expert)}, probabilities_[expert], 1});
      }
    }
    std::sort(best_first.begin() + first, best_first.end(), [](const Guess& a, const Guess& b) {
      return a.probability != b.probability ? a.probability > b.probability : a.key.expert < b.key.expert;
    });
  }

  size_t memory_bytes() const override {
    return inputs_.size() * (sizeof(Input) + hidden_ * sizeof(float)) + 2 * probabilities_.size() * sizeof(float);
  }

 private:
  struct Input {
    std::optional<LayerId> layer;  // where `hidden` was seen
    std::vector<float> hidden;
  };

  const std::vector<LayerId> layers_;
  const int hidden_;
  const GateFn gate_;
  absl::flat_hash_map<SessionId, Input> inputs_;
  // Scratch of Predict, which runs on the engine's thread alone. (experts)
  std::vector<float> probabilities_;
  std::vector<float> ordered_;
};

}  // namespace

std::unique_ptr<ExpertPredictor> MakeCrossLayerGatePredictor(const PredictorContext& context) {
  return std::make_unique<CrossLayerGatePredictor>(context);
}

}  // namespace moed
