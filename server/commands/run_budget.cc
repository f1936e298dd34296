#include "server/commands/run_budget.h"

#include <memory>

#include "core/base/byte_size.h"
#include "core/base/status.h"
#include "core/machine/control_groups.h"
#include "core/serving/serving_plan.h"
#include "core/store/store.h"
#include "core/tokenizer/chat_settings.h"
#include "core/tokenizer/tokenizer.h"
#include "server/startup/provider_builder.h"

namespace moed {
namespace {

constexpr uint64_t kBesideDaemonBytes = 32 << 20;  // this process and moectl

}  // namespace

absl::StatusOr<DefaultBudget> ChooseBudget(std::optional<uint64_t> told, const std::string& root) {
  if (!told) return FindDefaultBudget(root, kBesideDaemonBytes);
  constexpr uint64_t kBeside = kBesideBudgetBytes + kBesideDaemonBytes;
  const std::optional<GroupMemory> limit = SmallestGroupMemory(root);
  if (limit && (limit->limit_bytes < kBeside || *told > limit->limit_bytes - kBeside)) {
    return InvalidArgument(FormatBytes(*told), " and ", FormatBytes(kBeside), " beside them are more than the cgroup's limit of ",
                           FormatBytes(limit->limit_bytes), " (", limit->path, ")");
  }
  return DefaultBudget{.bytes = *told, .reason = "as told"};
}

absl::StatusOr<RunBudget> PlanRun(const Config& config) {
  MOED_ASSIGN_OR_RETURN(const std::unique_ptr<StoreReader> store, StoreReader::Open(config.store));
  MOED_ASSIGN_OR_RETURN(const ModelSpec spec, SpecFromJson(store->description().model_spec));
  std::string blob = store->TakeTokenizer();
  MOED_ASSIGN_OR_RETURN(const ChatSettings chat, ChatSettingsOf(blob));
  MOED_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, Tokenizer::FromBlob(std::move(blob)));
  MOED_ASSIGN_OR_RETURN(const std::unique_ptr<ProviderBuilder> experts, ProviderBuilder::Choose(config, *store, spec));
  MOED_ASSIGN_OR_RETURN(const DefaultBudget budget, ChooseBudget(config.memory_budget));
  MOED_ASSIGN_OR_RETURN(const ServingPlan plan,
                        PlanServing({budget.bytes, config.serving, store->description(), spec, tokenizer->memory_bytes(),
                                     chat.chat_template.size(), experts->Needs(), !config.trace.empty()}));
  const std::string table = plan.memory.Table();
  return RunBudget{
      .bytes = budget.bytes,
      .table = StrCat("memory budget ", FormatBytes(budget.bytes), ", ", budget.reason, table.substr(table.find('\n')), "\n"),
      .has_chat_template = !chat.chat_template.empty()};
}

}  // namespace moed
