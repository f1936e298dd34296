#include "core/expert/predictors/table.h"

#include "core/base/status.h"
#include "core/expert/named_rows.h"
#include "core/expert/predictors/activation_path.h"
#include "core/expert/predictors/cross_layer_gate.h"
#include "core/expert/predictors/fate.h"
#include "core/expert/predictors/learned.h"
#include "core/expert/predictors/none.h"
#include "core/expert/predictors/stacked_gate.h"
#include "core/expert/predictors/swapmoe.h"
#include "core/expert/predictors/token_id.h"
#include "core/expert/swapmoe/options.h"

namespace moed {
namespace {

// Of predictors without options.
template <std::unique_ptr<ExpertPredictor> (*kMake)(const PartContext&)>
absl::StatusOr<std::unique_ptr<ExpertPredictor>> Plain(const PartContext& context, const PartOptions&) {
  return kMake(context);
}

constexpr PredictorRow kPredictors[] = {
    {.name = "none", .description = "guesses nothing: experts are read when they are wanted", .make = Plain<MakeNoPredictor>},
    {.name = "cross-layer-gate",
     .description = "this layer's gate input through the next layer's gate, every expert above the 75th percentile",
     .source = "Fate, arXiv 2502.12224, 4.2",
     .make = Plain<MakeCrossLayerGatePredictor>,
     .memory = CrossLayerGateMemory,
     .needs_gate = true},
    {.name = "fate",
     .description = "the same, as many as can be read while a layer computes; a prompt's by popularity",
     .source = "Fate, arXiv 2502.12224, 4.3",
     .make = MakeFatePredictor,
     .memory = FatePredictorMemory,
     .needs_gate = true},
    {.name = "stacked-gate",
     .description = "this layer's gate input through the next layers' gates, the nearest layer that lacks an expert",
     .source = "HOBBIT, arXiv 2411.01433, 3.3",
     .options = kStackedGateOptions,
     .make = MakeStackedGatePredictor,
     .memory = StackedGateMemory,
     .needs_gate = true},
    {.name = "activation-path",
     .description = "experts that followed those of the two layers before, one after the other until the router answers",
     .source = "EdgeMoE, arXiv 2308.14352, III-C1",
     .options = kPathsOptions,
     .make = MakeActivationPathPredictor,
     .memory = PathPredictorMemory},
    {.name = "eap",
     .description = "the top k that followed the experts of the layer before",
     .source = "Fate's baseline, arXiv 2502.12224, 5.1",
     .options = kPathsOptions,
     .make = MakeEapPredictor,
     .memory = PathPredictorMemory},
    {.name = "swapmoe",
     .description = "foresees nothing: the loads of virtual experts that are due",
     .source = "SwapMoE, arXiv 2308.15030, 3.3",
     .options = kSwapMoeOptions,
     .make = MakeSwapMoePredictor,
     .mask = "swapmoe"},
    {.name = "token-id",
     .description = "experts of the next layers that served the token before; only guesses that pay",
     .source = "ours",
     .make = Plain<MakeTokenIdPredictor>,
     .memory = TokenIdMemory},
    {.name = "learned",
     .description = "next layer's gate and the token's own past, as probabilities learned while serving; only guesses that pay",
     .source = "ours",
     .make = Plain<MakeLearnedPredictor>,
     .memory = LearnedPredictorMemory},
};

}  // namespace

std::span<const PredictorRow> Predictors() { return kPredictors; }

absl::StatusOr<std::unique_ptr<ExpertPredictor>> MakePredictor(std::string_view name, const PartContext& context,
                                                               const PartOptions& options) {
  MOED_ASSIGN_OR_RETURN(const PredictorRow* row, FindRow(Predictors(), "predictor", name));
  if (row->needs_gate && context.gate == nullptr) {
    return InvalidArgument("predictor ", name, " asks the model's gates, which are not there (recorded routing has none)");
  }
  return row->make(context, options);
}

}  // namespace moed
