#include "tools/plan/widths_file.h"

#include <utility>
#include <vector>

#include "core/base/status.h"
#include "nlohmann/json.hpp"
#include "tools/plan/plan_writer.h"

namespace moed {
namespace {

using Json = nlohmann::ordered_json;

// [MoE layer][expert]
template <class T>
Json ByLayer(const std::vector<T>& by_expert, int experts_per_layer) {
  Json layers = Json::array();
  for (size_t first = 0; first < by_expert.size(); first += experts_per_layer) {
    layers.push_back(std::vector<T>(by_expert.begin() + first, by_expert.begin() + first + experts_per_layer));
  }
  return layers;
}

Json Report(const WidthsQuestion& question, const WidthsPlan& plan, const LossEvaluator& evaluator) {
  Json report;
  report["tolerable_loss"] = question.tolerable_loss;
  report["loss"] = plan.loss;
  report["nats_per_token"] = plan.nats;
  report["reference_nats_per_token"] = plan.reference_nats;
  report["scored_tokens"] = evaluator.scored_tokens();
  if (plan.confirmed) {
    report["confirmed"] = {{"confidence", question.confidence},
                           {"loss", plan.confirmed->loss},
                           {"bound", plan.confirmed->bound},
                           {"holds", plan.confirmed->holds}};
  }
  report["upper"] = question.widths[plan.upper].name;
  report["lower"] = question.widths[plan.lower].name;
  report["lowered_experts"] = plan.lowered;
  report["expert_bytes"] = BytesOf(plan, evaluator.store().description());
  report["reference_expert_bytes"] = evaluator.store().all_expert_bytes();
  for (size_t i = 0; i < question.widths.size(); ++i) {
    report["uniform"].push_back({{"format", question.widths[i].name}, {"loss", plan.uniform_losses[i]}});
  }
  report["importance"] = ByLayer(plan.importance, evaluator.spec().experts);
  return report;
}

}  // namespace

uint64_t BytesOf(const WidthsPlan& plan, const StoreDescription& store) {
  uint64_t bytes = 0;
  for (size_t expert = 0; expert < plan.precisions.size(); ++expert) {
    const size_t layer = expert / static_cast<size_t>(store.experts_per_layer);
    bytes += store.precisions[plan.precisions[expert]].layers[layer].record_bytes;
  }
  return bytes;
}

absl::Status WriteWidthsFile(const std::string& path, const WidthsQuestion& question, const WidthsPlan& plan,
                             const LossEvaluator& evaluator) {
  Json json;
  json["model_hash"] = StrCat(absl::Hex(evaluator.store().model_hash(), absl::kZeroPad16));
  for (const ExpertPrecision& precision : evaluator.store().description().precisions) {
    json["formats"].push_back(PrecisionName(precision));
  }
  json["precisions"] = ByLayer(std::vector<int>(plan.precisions.begin(), plan.precisions.end()), evaluator.spec().experts);
  json["report"] = Report(question, plan, evaluator);
  return WritePlanFile(path, json);
}

}  // namespace moed
