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

absl::StatusOr<std::unique_ptr<FidelityRule>> MakeHobbitRule(const RuleContext& context) {
  MOED_ASSIGN_OR_RETURN(const double t1, context.options.Number(kHobbitOptions[0]));
  MOED_ASSIGN_OR_RETURN(const double t2, context.options.Number(kHobbitOptions[1]));
  if (t1 > t2) return InvalidArgument("hobbit-t1 ", t1, " is above hobbit-t2 ", t2, ": allowed are 0 <= T1 <= T2 <= 1");
  return std::make_unique<HobbitRule>(t1, t2, context.model.precisions);
}

}  // namespace moed
