#include "core/expert/fidelity/hobbit_plan.h"

#include <cmath>
#include <memory>

#include "core/base/status.h"
#include "core/expert/plan_reader.h"
#include "core/store/store.h"
#include "nlohmann/json.hpp"

namespace moed {
namespace {

constexpr double kRounding = 1e-6;  // of sums

absl::Status CheckPlan(const HobbitPlan& plan) {
  if (plan.thresholds.high > plan.thresholds.low) {
    return InvalidArgument("t1 ", plan.thresholds.high, " is above t2 ", plan.thresholds.low, ": allowed are 0 <= t1 <= t2 <= 1");
  }
  const HobbitWeights& weights = plan.tuning.weights;
  const double sum = weights.lru + weights.lfu + weights.lhu + weights.fld;
  if (std::abs(sum - 1) > kRounding) return InvalidArgument("lru, lfu, lhu and fld sum to ", sum, ", 1 is needed");
  return absl::OkStatus();
}

absl::StatusOr<HobbitPlan> ParseHobbitPlan(const std::string& path, uint64_t model_hash) {
  MOED_ASSIGN_OR_RETURN(const std::string text, ReadPlanFile(path));
  HobbitPlan plan;
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    MOED_RETURN_IF_ERROR(CheckPlanHash(json.at("model_hash").get<std::string>(), model_hash));
    HobbitWeights& weights = plan.tuning.weights;
    const std::pair<const char*, double*> numbers[] = {{"t1", &plan.thresholds.high},
                                                       {"t2", &plan.thresholds.low},
                                                       {"lru", &weights.lru},
                                                       {"lfu", &weights.lfu},
                                                       {"lhu", &weights.lhu},
                                                       {"fld", &weights.fld},
                                                       {"high_cache", &plan.tuning.high_cache}};
    for (const auto& [name, number] : numbers) {
      *number = json.at(name).get<double>();
      if (!(*number >= 0 && *number <= 1)) return InvalidArgument(name, " is ", *number, ", allowed are 0 to 1");
    }
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument("not {\"model_hash\": ..., \"t1\": ..., \"t2\": ..., \"lru\": ..., \"lfu\": ..., \"lhu\": ..., ",
                           "\"fld\": ..., \"high_cache\": ...}: ", error.what());
  }
  MOED_RETURN_IF_ERROR(CheckPlan(plan));
  return plan;
}

}  // namespace

absl::StatusOr<HobbitPlan> ReadHobbitPlan(const std::string& path, uint64_t model_hash) {
  absl::StatusOr<HobbitPlan> plan = ParseHobbitPlan(path, model_hash);
  if (plan.ok()) return plan;
  return InvalidArgument("hobbit-plan: ", path, ": ", plan.status().message());
}

absl::StatusOr<std::any> ReadHobbitPlanFile(const std::string& path, const StoreReader& store) {
  MOED_ASSIGN_OR_RETURN(const HobbitPlan plan, ReadHobbitPlan(path, store.model_hash()));
  return std::make_shared<const HobbitPlan>(plan);
}

}  // namespace moed
