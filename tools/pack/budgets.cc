#include "tools/pack/budgets.h"

#include <cstdio>

#include "core/base/byte_size.h"
#include "core/base/status.h"
#include "tools/terminal/amount.h"

namespace moed {
namespace {

std::string Line(const char* name, const MemoryPlan& memory, const std::string& experts) {
  char line[200];
  std::snprintf(line, sizeof line, "  %-12s %18s bytes (%s): %s, contexts of %s tokens\n", name, Grouped(memory.budget).c_str(),
                FormatBytes(memory.budget).c_str(), experts.c_str(), Grouped(static_cast<uint64_t>(memory.max_context)).c_str());
  return line;
}

}  // namespace

absl::StatusOr<ServingBudgets> FindServingBudgets(const PackPlan& plan, const ServingOptions& options) {
  MOED_ASSIGN_OR_RETURN(const PresetSetup preset, ChoosePreset(PresetChoice{}));
  return FindServingBudgets({.options = options,
                             .store = plan.description,
                             .spec = plan.spec,
                             .tokenizer_bytes = plan.tokenizer_bytes,
                             .chat_template_bytes = plan.chat_template_bytes,
                             .preset = NeedsOfPreset(preset, plan.description, plan.spec)});
}

std::string BudgetTable(const PackPlan& plan, const ServingBudgets& budgets) {
  const uint64_t record = LargestRecordBytes(plan.description);
  const uint64_t experts = AllRecordBytes(plan.description, kReferencePrecision) / record;
  return StrCat(Line("smallest", budgets.smallest,
                     StrCat("room for ", Grouped(budgets.smallest.cache / record), " of ", Grouped(experts), " experts")),
                Line("comfortable", budgets.comfortable, "every expert stays in memory"));
}

}  // namespace moed
