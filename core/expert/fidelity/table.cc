#include "core/expert/fidelity/table.h"

#include "core/base/status.h"
#include "core/expert/fidelity/fate.h"
#include "core/expert/fidelity/fixed.h"
#include "core/expert/fidelity/hobbit.h"
#include "core/expert/fidelity/priced.h"
#include "core/expert/fidelity/swapmoe.h"
#include "core/expert/fidelity/widths.h"
#include "core/expert/named_rows.h"
#include "core/expert/swapmoe/options.h"

namespace moed {
namespace {

absl::StatusOr<std::unique_ptr<RouterMask>> MakeNoMask(const PartContext&, const PartOptions&) { return nullptr; }

constexpr RouterMaskRow kRouterMasks[] = {
    {.name = "none", .description = "the router chooses among all experts", .make = MakeNoMask},
    {.name = "swapmoe",
     .description = "answers choose among residents alone, which follow the router's choices",
     .source = "SwapMoE, arXiv 2308.15030, 3.2",
     .fidelity = Fidelity::Fast(),
     .chooses_residents = true,
     .options = kSwapMoeOptions,
     .check_options = CheckSwapMoeOptions,
     .make = MakeSwapMoeMask,
     .memory = SwapMoeMaskMemory,
     .least_records = SwapMoeLeastRecords,
     .check = CheckStoreHasNorms},
};

constexpr FidelityRow kFidelityRules[] = {
    {.name = "exact", .description = "every expert at the store's reference precision", .make = MakeExactRule},
    {.name = "lowest",
     .description = "every expert at the store's last precision",
     .source = "EdgeMoE's IO-QFREE and IO-QEXP, arXiv 2308.14352, IV-A",
     .fidelity = Fidelity::Fast(),
     .least_precisions = 2,
     .at_last_precision = true,
     .make = MakeLowestRule},
    {.name = "hobbit",
     .description = "at a miss: high, low or skipped, by the gate mass before the expert",
     .source = "HOBBIT, arXiv 2411.01433, 3.2",
     .fidelity = Fidelity::Fast(),
     .least_precisions = 2,
     .options = kHobbitRuleOptions,
     .check_options = CheckHobbitRuleOptions,
     .make = MakeHobbitRule},
    {.name = "fate",
     .description = "the least popular experts of a prompt low; on a slow disk unforeseen misses of an answer too",
     .source = "Fate, arXiv 2502.12224, prompts: 4.5, answers: 5.3",
     .fidelity = Fidelity::Fast(),
     .least_precisions = 2,
     .options = kFateRuleOptions,
     .make = MakeFateRule},
    {.name = "priced",
     .description = "of what a token may lose, what saves most waiting for the gate mass it costs",
     .source = "ours",
     .options = kPricedRuleOptions,
     .make = MakePricedRule},
    {.name = "widths",
     .description = "every expert at its own precision, from a file that moed-plan wrote",
     .source = "EdgeMoE, arXiv 2308.14352, III-B",
     .fidelity = Fidelity::Fast(),
     .least_precisions = 2,
     .options = kWidthsRuleOptions,
     .check_options = CheckWidthsGiven,
     .make = MakeWidthsRule,
     .memory = WidthsRuleMemory},
};

}  // namespace

std::span<const RouterMaskRow> RouterMasks() { return kRouterMasks; }
std::span<const FidelityRow> FidelityRules() { return kFidelityRules; }

absl::StatusOr<std::unique_ptr<RouterMask>> MakeRouterMask(std::string_view name, const PartContext& context,
                                                           const PartOptions& options) {
  MOED_ASSIGN_OR_RETURN(const RouterMaskRow* row, FindRow(RouterMasks(), "router mask", name));
  return row->make(context, options);
}

absl::StatusOr<std::unique_ptr<FidelityRule>> MakeFidelityRule(std::string_view name, const PartContext& context,
                                                               const PartOptions& options) {
  MOED_ASSIGN_OR_RETURN(const FidelityRow* row, FindRow(FidelityRules(), "fidelity rule", name));
  if (context.model.precisions < row->least_precisions) {
    return FailedPrecondition("the fidelity rule \"", name, "\" needs experts at ", row->least_precisions,
                              " precisions, the store holds them at ", context.model.precisions);
  }
  return row->make(context, options);
}

}  // namespace moed
