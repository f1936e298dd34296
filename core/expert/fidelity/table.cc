#include <algorithm>

#include "core/expert/fidelity/fate.h"
#include "core/expert/fidelity/hobbit.h"
#include "core/expert/fidelity/mask.h"
#include "core/expert/fidelity/priced.h"
#include "core/expert/fidelity/rule.h"
#include "core/expert/fidelity/widths.h"
#include "core/expert/named_rows.h"

namespace moed {
namespace {

class ExactRule final : public FidelityRule {
 public:
  void Resolve(const LayerDemand&, std::span<Action> actions) override { std::fill(actions.begin(), actions.end(), kExactly); }
};

// Everything at the store's last precision: the quantised baselines of EdgeMoE, section 5.1.
class LowestRule final : public FidelityRule {
 public:
  explicit LowestRule(int precisions) : lowest_(static_cast<Precision>(precisions - 1)) {}
  void Resolve(const LayerDemand&, std::span<Action> actions) override {
    std::fill(actions.begin(), actions.end(), Action{ActionKind::kUse, lowest_});
  }
  Precision PrefetchPrecision(const ExpertKey&, Precision) const override { return lowest_; }

 private:
  const Precision lowest_;
};

constexpr RouterMaskRow kRouterMasks[] = {
    {"none", "the router chooses among all experts",
     [](const ExpertModelShape&) -> std::unique_ptr<RouterMask> { return nullptr; }},
};

constexpr FidelityRow kFidelityRules[] = {
    {"exact",
     "every expert at the store's reference precision",
     kLoseNothing,
     1,
     {},
     [](const RuleContext&) -> absl::StatusOr<std::unique_ptr<FidelityRule>> { return std::make_unique<ExactRule>(); }},
    {"lowest",
     "every expert at the store's last precision",
     kLoseAnything,
     2,
     {},
     [](const RuleContext& context) -> absl::StatusOr<std::unique_ptr<FidelityRule>> {
       return std::make_unique<LowestRule>(context.model.precisions);
     }},
    {"hobbit", "at a miss: high, low or skipped, by the gate mass before the expert", kLoseAnything, 2, kHobbitOptions,
     MakeHobbitRule},
    {"fate", "the least popular experts of a prompt low; on a slow disk unforeseen misses of an answer too", kLoseAnything, 2,
     kFateOptions, MakeFateRule},
    {"priced", "of what a token may lose, what saves most waiting for the gate mass it costs", kLoseNothing, 1, kPricedOptions,
     MakePricedRule},
    {"widths", "every expert at its own precision, from a file that moed-plan wrote", kLoseAnything, 2, kWidthsOptions,
     MakeWidthsRule},
};

}  // namespace

std::span<const RouterMaskRow> RouterMasks() { return kRouterMasks; }
std::span<const FidelityRow> FidelityRules() { return kFidelityRules; }

absl::StatusOr<std::unique_ptr<RouterMask>> MakeRouterMask(std::string_view name, const ExpertModelShape& context) {
  MOED_ASSIGN_OR_RETURN(const RouterMaskRow* row, FindRow(RouterMasks(), "router mask", name));
  return row->make(context);
}

absl::StatusOr<std::unique_ptr<FidelityRule>> MakeFidelityRule(std::string_view name, const RuleContext& context) {
  MOED_ASSIGN_OR_RETURN(const FidelityRow* row, FindRow(FidelityRules(), "fidelity rule", name));
  if (context.model.precisions < row->least_precisions) {
    return FailedPrecondition("the fidelity rule \"", name, "\" needs experts at ", row->least_precisions,
                              " precisions, the store holds them at ", context.model.precisions);
  }
  return row->make(context);
}

}  // namespace moed
