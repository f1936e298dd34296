#include "server/commands/run_budget.h"

#include <memory>

#include "core/base/byte_size.h"
#include "core/base/status.h"
#include "core/machine/system_files.h"
#include "core/serving/packed_model.h"
#include "core/serving/serving_plan.h"
#include "server/startup/provider_builder.h"

namespace moed {
namespace {

constexpr uint64_t kBesideDaemonBytes = 32 << 20;  // this process and moectl

}  // namespace

absl::StatusOr<DefaultBudget> ChooseBudget(std::optional<uint64_t> told, const std::string& root) {
  if (!told) return FindDefaultBudget(root, kBesideDaemonBytes);
  constexpr uint64_t kBeside = kBesideBudgetBytes + kBesideDaemonBytes;
  MOED_RETURN_IF_ERROR(CheckMachineHas(*told, kBeside, root));
  const std::optional<uint64_t> available = ReadMemInfo(root, "MemAvailable");
  DefaultBudget budget{.bytes = *told, .reason = "as told"};
  if (available && (*available < kBeside || *told > *available - kBeside)) {
    budget.reason +=
        StrCat(", although only ", FormatBytes(*available), " of memory are available: the kernel may swap, or end it");
  }
  return budget;
}

absl::StatusOr<RunBudget> PlanRun(const Config& config) {
  MOED_ASSIGN_OR_RETURN(const PackedModel model, OpenPackedModel(config.store));
  const StoreDescription& description = model.store->description();
  const uint64_t template_bytes = model.chat.chat_template.size();
  MOED_ASSIGN_OR_RETURN(const std::unique_ptr<ProviderBuilder> experts,
                        ProviderBuilder::Choose(config, *model.store, model.spec));
  MOED_ASSIGN_OR_RETURN(const DefaultBudget budget, ChooseBudget(config.memory_budget));
  MOED_ASSIGN_OR_RETURN(
      const ServingPlan plan,
      PlanServing({budget.bytes, config.serving, description, model.spec, model.tokenizer->memory_bytes(), template_bytes,
                   experts->Needs(), !config.trace.empty(), std::nullopt, !config.record_routing.empty()}));
  const std::string table = plan.memory.Table();
  return RunBudget{
      .bytes = budget.bytes,
      .table = StrCat("memory budget ", FormatBytes(budget.bytes), ", ", budget.reason, table.substr(table.find('\n')), "\n"),
      .has_chat_template = template_bytes > 0};
}

}  // namespace moed
