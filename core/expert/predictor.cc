#include "core/expert/predictor.h"

#include "core/expert/named_rows.h"
#include "core/expert/predictor_cross_layer_gate.h"
#include "core/expert/predictor_learned.h"

namespace moed {
namespace {

class NoPredictor final : public ExpertPredictor {
 public:
  void Predict(SessionId, LayerId, std::vector<Guess>&) override {}
};

constexpr PredictorRow kPredictors[] = {
    {"none", "guesses nothing: experts are read when they are wanted",
     [](const PredictorContext&) -> std::unique_ptr<ExpertPredictor> { return std::make_unique<NoPredictor>(); }},
    {"cross-layer-gate", "this layer's gate input through the next layer's gate, every expert above the 75th percentile",
     MakeCrossLayerGatePredictor},
    {"learned", "next layer's gate and the token's own past, as probabilities learned while serving; only guesses that pay",
     MakeLearnedPredictor},
};

}  // namespace

std::span<const PredictorRow> Predictors() { return kPredictors; }

absl::StatusOr<std::unique_ptr<ExpertPredictor>> MakePredictor(std::string_view name, const PredictorContext& context) {
  MOED_ASSIGN_OR_RETURN(const PredictorRow* row, FindRow(Predictors(), "predictor", name));
  return row->make(context);
}

}  // namespace moed
