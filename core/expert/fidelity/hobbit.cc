#include "core/expert/fidelity/hobbit.h"

#include "core/base/status.h"

namespace moed {
namespace {

class HobbitRule final : public FidelityRule {
 public:
  HobbitRule(double t1, double t2, int precisions) : t1_(t1), t2_(t2), low_(static_cast<Precision>(precisions - 1)) {}

  // The paper scores the experts of one token. Where several chose one, as in a prompt, the lowest score counts: ours.
  void Resolve(const LayerDemand& demand, std::span<Action> actions) override {
    for (size_t i = 0; i < actions.size(); ++i) {
      const WantedExpert& expert = demand.wanted[i];
      if (!demand.Missing(expert) || expert.mass_before <= t1_) continue;
      actions[i] = expert.mass_before <= t2_ ? Action{ActionKind::kUse, low_} : Action{ActionKind::kSkip};
    }
  }

 private:
  const double t1_;
  const double t2_;
  const Precision low_;
};

}  // namespace

absl::StatusOr<HobbitThresholds> HobbitThresholdsOf(const PartOptions& options) {
  const auto plan = options.File<HobbitPlan>(kHobbitPlanOption);
  HobbitThresholds thresholds = plan != nullptr ? plan->thresholds : HobbitThresholds{};
  if (plan == nullptr || options.Given(kHobbitT1)) {
    MOED_ASSIGN_OR_RETURN(thresholds.high, options.Number(kHobbitT1));
  }
  if (plan == nullptr || options.Given(kHobbitT2)) {
    MOED_ASSIGN_OR_RETURN(thresholds.low, options.Number(kHobbitT2));
  }
  if (thresholds.high <= thresholds.low) return thresholds;
  return InvalidArgument("hobbit-t1 ", thresholds.high, " is above hobbit-t2 ", thresholds.low,
                         ": allowed are 0 <= T1 <= T2 <= 1");
}

absl::Status CheckHobbitRuleOptions(const PartOptions& options) {
  return options.Unread(kHobbitPlanOption) ? absl::OkStatus() : HobbitThresholdsOf(options).status();
}

absl::StatusOr<std::unique_ptr<FidelityRule>> MakeHobbitRule(const PartContext& context, const PartOptions& options) {
  MOED_ASSIGN_OR_RETURN(const HobbitThresholds thresholds, HobbitThresholdsOf(options));
  return std::make_unique<HobbitRule>(thresholds.high, thresholds.low, context.model.precisions);
}

}  // namespace moed
