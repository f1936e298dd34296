#include "core/expert/fidelity/fate_plan.h"

#include "core/base/json_value.h"
#include "core/base/status.h"
#include "core/expert/plan_reader.h"
#include "core/store/store.h"
#include "nlohmann/json.hpp"

namespace moed {
namespace {

absl::StatusOr<FatePlan> ParseFatePlan(const std::string& path, uint64_t model_hash, int layers) {
  MOED_ASSIGN_OR_RETURN(const std::string text, ReadPlanFile(path));
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    MOED_RETURN_IF_ERROR(CheckPlanHash(json.at("model_hash").get<std::string>(), model_hash));
    const double share = json.at("prefill_low").get<double>();
    if (!(share >= 0 && share <= 1)) return InvalidArgument("prefill_low is ", share, ", allowed are 0 to 1");
    MOED_ASSIGN_OR_RETURN(const int64_t shallow, WholeNumber("shallow_layers", json.at("shallow_layers"), 0, layers));
    return FatePlan{share, static_cast<int>(shallow)};
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument("not {\"model_hash\": ..., \"prefill_low\": ..., \"shallow_layers\": ...}: ", error.what());
  }
}

}  // namespace

absl::StatusOr<FatePlan> ReadFatePlan(const std::string& path, uint64_t model_hash, int layers) {
  absl::StatusOr<FatePlan> plan = ParseFatePlan(path, model_hash, layers);
  if (plan.ok()) return plan;
  return InvalidArgument("fate-plan: ", path, ": ", plan.status().message());
}

absl::StatusOr<std::any> ReadFatePlanFile(const std::string& path, const StoreReader& store) {
  const auto layers = static_cast<int>(store.description().moe_layers.size());
  MOED_ASSIGN_OR_RETURN(const FatePlan plan, ReadFatePlan(path, store.model_hash(), layers));
  return std::make_shared<const FatePlan>(plan);
}

absl::StatusOr<double> FatePrefillLow(const PartOptions& options) {
  const auto plan = options.File<FatePlan>(kFatePlanOption);
  if (plan != nullptr && !options.Given(kFatePrefillLow)) return plan->prefill_low;
  return options.Number(kFatePrefillLow);
}

absl::StatusOr<int> FateShallowLayers(const PartOptions& options) {
  const auto plan = options.File<FatePlan>(kFatePlanOption);
  if (plan != nullptr && !options.Given(kFateShallowLayers)) return plan->shallow_layers;
  return options.WholeNumber(kFateShallowLayers);
}

}  // namespace moed
