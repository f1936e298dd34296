#include "server/plan/report.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "core/base/byte_size.h"
#include "core/base/status.h"
#include "core/base/version.h"
#include "core/store/layout.h"
#include "nlohmann/json.hpp"

namespace moed {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMiB = 1 << 20;

double ShareOf(uint64_t part, uint64_t all) { return std::min(1.0, static_cast<double>(part) / static_cast<double>(all)); }

std::string ModelText(const PlannedModel& model) {
  const StoreDescription& store = model.store;
  return absl::StrFormat("%s: %s, %d layers, %d experts in %d of them, top-%d, %s of experts (%s), %s of trunk%s\n", model.path,
                         model.spec.family, model.spec.layers, store.experts_per_layer, store.moe_layers.size(), model.spec.top_k,
                         FormatBytes(AllRecordBytes(store, kReferencePrecision)),
                         PrecisionName(store.precisions[kReferencePrecision]), FormatBytes(store.trunk_bytes),
                         store.coded()  ? absl::StrFormat("; coded: %.1f %% of the experts' bytes are read",
                                                          100 * StoredShare(store, kReferencePrecision))
                         : model.packed ? ""
                                        : "; not packed yet");
}

std::string MachineText(const PlannedModel& model, const MachineSpeed& machine) {
  const TokenBytes token = BytesOfToken(model.store, model.spec);
  std::string text =
      absl::StrFormat("memory reads %.1f GB/s with %d threads; a token's %.1f MB of weights take %.3f ms (%s, %.2f of that)\n",
                      machine.memory.bytes_per_second * 1e-9, machine.memory.threads, static_cast<double>(token.all()) * 1e-6,
                      machine.product_seconds * 1e3, machine.kernels, machine.KernelShare(token));
  text += absl::StrFormat("an expert of %s is read in %.3f ms, %d at once in %.3f ms: %.2f GB/s (%s)\n",
                          FormatBytes(machine.disk.block_bytes), machine.disk.one_seconds * 1e3, machine.disk.depth,
                          machine.disk.burst_seconds * 1e3, machine.disk.BytesPerSecond() * 1e-9, machine.disk_backend);
  if (machine.disk_backend == "buffered") text += "warning: O_DIRECT is refused, so this was the page cache and no disk\n";
  return text;
}

std::string Row(const BudgetOutlook& row) {
  return absl::StrFormat("  %10.1f MiB %7.1f %% %8.1f %% %10.2f MB %10.1f   %.1f to %.1f   %d   %s\n",
                         static_cast<double>(row.memory.budget) / kMiB, 100 * row.expert_share, 100 * row.expected.hit_ratio,
                         row.expected.read_bytes * 1e-6, row.expected.TokensPerSecond(), row.slowest.TokensPerSecond(),
                         row.fastest.TokensPerSecond(), row.memory.max_context, std::string(row.name));
}

// All rows, the chosen budget where it belongs.
std::vector<const BudgetOutlook*> Ascending(const Outlook& outlook) {
  std::vector<const BudgetOutlook*> rows;
  for (const BudgetOutlook& row : outlook.others) rows.push_back(&row);
  rows.push_back(&outlook.chosen);
  std::ranges::stable_sort(rows, {}, [](const BudgetOutlook* row) { return row->memory.budget; });
  return rows;
}

Json SpeedJson(const DecodeSpeed& speed) {
  return {{"hit_ratio", speed.hit_ratio},
          {"tokens_per_second", speed.TokensPerSecond()},
          {"compute_seconds", speed.compute_seconds},
          {"waiting_seconds", speed.waiting_seconds},
          {"read_bytes", speed.read_bytes}};
}

Json PartsJson(const std::vector<MemoryPart>& memory) {
  Json parts = Json::array();
  for (const MemoryPart& part : memory) parts.push_back({{"part", part.name}, {"bytes", part.bytes}, {"note", part.note}});
  return parts;
}

Json BudgetJson(const BudgetOutlook& row) {
  return {{"name", row.name},
          {"memory_budget_bytes", row.memory.budget},
          {"cache_bytes", row.memory.cache},
          {"kv_bytes", row.memory.kv},
          {"max_context", row.memory.max_context},
          {"expert_share", row.expert_share},
          {"memory", PartsJson(row.memory.parts)},
          {"expected", SpeedJson(row.expected)},
          {"slowest", SpeedJson(row.slowest)},
          {"fastest", SpeedJson(row.fastest)}};
}

Json ModelJson(const PlannedModel& model) {
  const StoreDescription& store = model.store;
  const TokenBytes token = BytesOfToken(store, model.spec);
  return {{"path", model.path},
          {"packed", model.packed},
          {"family", model.spec.family},
          {"layers", model.spec.layers},
          {"moe_layers", store.moe_layers.size()},
          {"experts_per_layer", store.experts_per_layer},
          {"top_k", model.spec.top_k},
          {"expert_format", PrecisionName(store.precisions[kReferencePrecision])},
          {"all_expert_bytes", AllRecordBytes(store, kReferencePrecision)},
          {"coded", store.coded()},
          {"stored_share", StoredShare(store, kReferencePrecision)},
          {"trunk_bytes", store.trunk_bytes},
          {"token_trunk_bytes", token.trunk},
          {"token_expert_bytes", token.experts}};
}

Json MachineJson(const PlannedModel& model, const MachineSpeed& machine) {
  return {{"memory_bytes_per_second", machine.memory.bytes_per_second},
          {"threads", machine.memory.threads},
          {"kernels", machine.kernels},
          {"product_seconds", machine.product_seconds},
          {"kernel_share", machine.KernelShare(BytesOfToken(model.store, model.spec))},
          {"read_backend", machine.disk_backend},
          {"page_cache", machine.disk_backend == "buffered"},
          {"record_bytes", machine.disk.block_bytes},
          {"one_read_seconds", machine.disk.one_seconds},
          {"burst_reads", machine.disk.depth},
          {"burst_seconds", machine.disk.burst_seconds},
          {"disk_bytes_per_second", machine.disk.BytesPerSecond()}};
}

}  // namespace

std::string PlanText(const PlannedModel& model, const MachineSpeed& machine, const Outlook& outlook) {
  std::string text = StrCat(ModelText(model), MachineText(model, machine), "\n",
                            outlook.chosen.name == "given" ? "given: " : "by default: ", outlook.chosen.memory.Table(), "\n\n");
  text += "  memory budget   experts      hits   read/token   tokens/s   at worst to at best   context\n";
  for (const BudgetOutlook* row : Ascending(outlook)) text += Row(*row);
  return StrCat(
      text,
      "\nDecoding of one conversation, warm, short contexts. Hits as on the demo model; at worst: every expert equally\n"
      "likely; at best: as on gpt-oss-20b's recorded routing (docs/planning.md).\n");
}

std::string DevicePlanText(const PlannedModel& model, const MemoryPlan& memory) {
  const uint64_t all = AllRecordBytes(model.store, kReferencePrecision);
  return StrCat(
      ModelText(model), "\n", memory.Table(), "\n\n",
      absl::StrFormat("of the experts' bytes %.1f %% may lie on the device, %.1f %% in both memories; contexts of %d tokens\n",
                      100 * ShareOf(memory.device_cache, all), 100 * ShareOf(memory.device_cache + memory.cache, all),
                      memory.max_context),
      "No device was measured, so no speed is told.\n");
}

std::string DevicePlanJson(const PlannedModel& model, const MemoryPlan& memory) {
  const uint64_t all = AllRecordBytes(model.store, kReferencePrecision);
  const Json plan = {{"version", Version()},
                     {"model", ModelJson(model)},
                     {"chosen",
                      {{"memory_budget_bytes", memory.budget},
                       {"device_budget_bytes", memory.device_budget},
                       {"cache_bytes", memory.cache},
                       {"device_cache_bytes", memory.device_cache},
                       {"kv_bytes", memory.kv},
                       {"max_context", memory.max_context},
                       {"expert_share", ShareOf(memory.device_cache + memory.cache, all)},
                       {"device_expert_share", ShareOf(memory.device_cache, all)},
                       {"memory", PartsJson(memory.parts)},
                       {"device_memory", PartsJson(memory.device_parts)}}}};
  return plan.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string PlanJson(const PlannedModel& model, const MachineSpeed& machine, const Outlook& outlook) {
  Json budgets = Json::array();
  for (const BudgetOutlook& row : outlook.others) budgets.push_back(BudgetJson(row));
  const Json plan = {{"version", Version()},
                     {"model", ModelJson(model)},
                     {"machine", MachineJson(model, machine)},
                     {"smallest_memory_budget_bytes", outlook.budgets.smallest.budget},
                     {"comfortable_memory_budget_bytes", outlook.budgets.comfortable.budget},
                     {"chosen", BudgetJson(outlook.chosen)},
                     {"budgets", std::move(budgets)}};
  return plan.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace moed
