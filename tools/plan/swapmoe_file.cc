#include "tools/plan/swapmoe_file.h"

#include <algorithm>
#include <numeric>

#include "core/base/status.h"
#include "nlohmann/json.hpp"
#include "tools/plan/plan_writer.h"

namespace moed {
namespace {

using Json = nlohmann::ordered_json;

Json ReportJson(const SlotsReport& report) {
  const int slots = std::accumulate(report.plan.slots.begin(), report.plan.slots.end(), 0);
  return {{"found_by", report.found_by},
          {"budget_bytes", report.budget_bytes},
          {"slots", slots},
          {"spare_slots", 1},
          {"nats_per_token", report.plan.nats},
          {"predicted_nats_per_token", report.predicted_nats},
          {"equal_slots", report.equal.slots},
          {"equal_slots_nats_per_token", report.equal.nats},
          {"all_experts_nats_per_token", report.all_nats},
          {"scored_tokens", report.scored_tokens},
          {"update_tokens", report.window},
          {"fitted_allocations", report.fitted},
          {"held_out_allocations", report.held_out},
          {"rank_correlation", report.rank_correlation},
          {"expert_bytes", report.profile.bytes},
          {"expert_load_seconds", report.profile.load_seconds},
          {"expert_compute_seconds", report.profile.compute_seconds},
          {"experts_compute_seconds_per_token", ComputeSeconds(report.plan.slots, report.top_k, report.profile)},
          {"load_all_slots_seconds", slots * report.profile.load_seconds}};
}

}  // namespace

double ComputeSeconds(const SlotCounts& slots, int top_k, const ExpertProfile& profile) {
  int computed = 0;
  for (const int here : slots) computed += std::min(here, top_k);
  return computed * profile.compute_seconds;
}

absl::Status WriteSlotsFile(const std::string& path, const StoreReader& store, const SlotsReport& report,
                            const std::vector<float>& norms) {
  Json json;
  json["model_hash"] = StrCat(absl::Hex(store.model_hash(), absl::kZeroPad16));
  json["slots"] = report.plan.slots;
  const auto experts = static_cast<std::ptrdiff_t>(store.description().experts_per_layer);
  for (auto first = norms.begin(); first != norms.end(); first += experts) {
    json["norms"].push_back(std::vector<float>(first, first + experts));
  }
  json["report"] = ReportJson(report);
  return WritePlanFile(path, json);
}

}  // namespace moed
