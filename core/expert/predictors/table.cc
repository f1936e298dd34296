#include "core/expert/named_rows.h"
#include "core/expert/predictors/activation_path.h"
#include "core/expert/predictors/cross_layer_gate.h"
#include "core/expert/predictors/fate.h"
#include "core/expert/predictors/learned.h"
#include "core/expert/predictors/predictor.h"
#include "core/expert/predictors/stacked_gate.h"
#include "core/expert/predictors/token_id.h"

namespace moed {
namespace {

constexpr int kMostLookAhead = 64;

class NoPredictor final : public ExpertPredictor {
 public:
  void Predict(SequenceId, LayerId, std::vector<Guess>&) override {}
};

constexpr PredictorRow kPredictors[] = {
    {"none", "guesses nothing: experts are read when they are wanted",
     [](const PredictorContext&) -> std::unique_ptr<ExpertPredictor> { return std::make_unique<NoPredictor>(); }},
    {"cross-layer-gate", "this layer's gate input through the next layer's gate, every expert above the 75th percentile",
     MakeCrossLayerGatePredictor, /*needs_gate=*/true},
    {"fate", "the same, as many as can be read while a layer computes; a prompt's by popularity", MakeFatePredictor,
     /*needs_gate=*/true},
    {"stacked-gate", "this layer's gate input through the next layers' gates, the nearest layer that lacks an expert",
     MakeStackedGatePredictor, /*needs_gate=*/true},
    {"activation-path", "experts that followed those of the two layers before, one after the other until the router answers",
     MakeActivationPathPredictor},
    {"eap", "the top k that followed the experts of the layer before", MakeEapPredictor},
    {"token-id", "experts of the next layers that served the token before; only guesses that pay", MakeTokenIdPredictor},
    {"learned", "next layer's gate and the token's own past, as probabilities learned while serving; only guesses that pay",
     MakeLearnedPredictor},
};

absl::Status CheckContext(const PredictorContext& context) {
  if (context.look_ahead < 1 || context.look_ahead > kMostLookAhead) {
    return InvalidArgument("look-ahead of ", context.look_ahead, " layers: allowed are 1 to ", kMostLookAhead);
  }
  if (!(context.high_mass >= 0 && context.high_mass <= context.low_mass && context.low_mass <= 1)) {
    return InvalidArgument("gate mass before an expert of ", context.high_mass, " and ", context.low_mass,
                           ": allowed are 0 <= T1 <= T2 <= 1");
  }
  if (!(context.unpopular_share >= 0 && context.unpopular_share <= 1)) {
    return InvalidArgument("unpopular share ", context.unpopular_share, ": allowed are 0 to 1");
  }
  if (const ActivationPaths* paths = context.paths.get();
      paths != nullptr && (paths->layers() != static_cast<int>(context.model.moe_layers.size()) ||
                           paths->experts() != context.model.experts_per_layer)) {
    return InvalidArgument("activation paths of ", paths->layers(), " layers of ", paths->experts(), " experts: the model has ",
                           context.model.moe_layers.size(), " of ", context.model.experts_per_layer);
  }
  return absl::OkStatus();
}

}  // namespace

std::span<const PredictorRow> Predictors() { return kPredictors; }

absl::StatusOr<std::unique_ptr<ExpertPredictor>> MakePredictor(std::string_view name, const PredictorContext& context) {
  MOED_ASSIGN_OR_RETURN(const PredictorRow* row, FindRow(Predictors(), "predictor", name));
  MOED_RETURN_IF_ERROR(CheckContext(context));
  if (row->needs_gate && context.gate == nullptr) {
    return InvalidArgument("predictor ", name, " asks the model's gates, which are not there (recorded routing has none)");
  }
  return row->make(context);
}

}  // namespace moed
