// HOBBIT (arXiv 2411.01433), section 3.3: neighbouring layers' gate inputs are alike, so this layer's goes through the gates of
// the next p layers at once. What they would choose is kept in the cache until its layer has come; of what is absent, the nearest
// layer is read that lacks something. An expert is read at the precision that section 3.2 gives a missing one of its predicted
// score.
#include "core/expert/predictors/stacked_gate.h"

#include <algorithm>
#include <vector>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/expert/expert_index.h"
#include "core/expert/fidelity/hobbit.h"
#include "core/expert/predictors/gate_guesses.h"
#include "core/expert/top_experts.h"

namespace moed {
namespace {

class StackedGatePredictor final : public ExpertPredictor {
 public:
  StackedGatePredictor(const PartContext& context, int look_ahead, const HobbitThresholds& thresholds)
      : index_(context.model.moe_layers, context.model.experts_per_layer, 1),
        top_k_(static_cast<size_t>(std::min(context.model.top_k, context.model.experts_per_layer))),
        look_ahead_(look_ahead),
        high_mass_(static_cast<float>(thresholds.high)),
        low_mass_(static_cast<float>(thresholds.low)),
        low_(static_cast<Precision>(context.model.precisions - 1)),
        gate_(context.gate),
        inputs_(context.hidden),
        probabilities_(static_cast<size_t>(context.model.experts_per_layer)),
        order_(probabilities_.size()) {
    MOED_CHECK(gate_ != nullptr && top_k_ > 0);
  }

  std::optional<PrefetchBudget> Budget(const ReadingPace&) const override {
    return PrefetchBudget{.max_loads = INT_MAX, .first_missing_layer_only = true, .keep_guessed = true};
  }

  void OnSequenceStart(SequenceId sequence) override { inputs_.Start(sequence); }
  void OnSequenceEnd(SequenceId sequence) override { inputs_.End(sequence); }
  void OnGateInput(SequenceId sequence, LayerId layer, std::span<const float> hidden) override {
    inputs_.Set(sequence, layer, hidden);
  }

  void Predict(SequenceId sequence, LayerId from, std::vector<Guess>& best_first) override {
    const std::span<const float> input = inputs_.At(sequence, from);
    if (input.empty()) return;
    const int here = index_.Position(from);
    const int last = std::min(here + look_ahead_, index_.layers() - 1);
    for (int position = here + 1; position <= last; ++position) {
      gate_(index_.Layer(position), input, probabilities_);
      GuessLayer(position, position - here, best_first);
    }
  }

  size_t memory_bytes() const override {
    return inputs_.memory_bytes() + probabilities_.size() * (sizeof(float) + sizeof(int32_t));
  }

 private:
  void GuessLayer(int position, int distance, std::vector<Guess>& best_first) {
    const std::span<const int32_t> chosen = TopExperts(probabilities_, top_k_, order_);
    float mass = 0;
    for (const int32_t expert : chosen) mass += probabilities_[static_cast<size_t>(expert)];
    float before = 0;  // the score s
    for (size_t rank = 0; rank < top_k_ && before <= low_mass_; ++rank) {
      const float p = probabilities_[static_cast<size_t>(chosen[rank])];
      const Precision precision = before <= high_mass_ ? kReferencePrecision : low_;
      best_first.push_back({{index_.Layer(position), chosen[rank]}, p, distance, precision});
      if (mass > 0) before += p / mass;
    }
  }

  const ExpertIndex index_;
  const size_t top_k_;
  const int look_ahead_;
  const float high_mass_, low_mass_;
  const Precision low_;
  const GateFn gate_;
  GateInputs inputs_;
  // Scratch. (experts)
  std::vector<float> probabilities_;
  std::vector<int32_t> order_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ExpertPredictor>> MakeStackedGatePredictor(const PartContext& context,
                                                                          const PartOptions& options) {
  MOED_ASSIGN_OR_RETURN(const int look_ahead, options.WholeNumber(kStackedGateLayers));
  HobbitThresholds thresholds;
  if (options.Has(kHobbitT1) || options.Has(kHobbitT2)) {  // beside the rule
    MOED_ASSIGN_OR_RETURN(thresholds, HobbitThresholdsOf(options));
  }
  return std::make_unique<StackedGatePredictor>(context, look_ahead, thresholds);
}

PartMemory StackedGateMemory(const PartContext& context, const PartOptions&) {
  return {.fixed_bytes = static_cast<size_t>(context.model.experts_per_layer) * (sizeof(float) + sizeof(int32_t)),
          .sequence_bytes = GateInputs::SequenceBytes(context.hidden)};
}

}  // namespace moed
