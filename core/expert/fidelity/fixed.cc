#include "core/expert/fidelity/fixed.h"

#include <algorithm>

namespace moed {
namespace {

class FixedRule final : public FidelityRule {
 public:
  explicit FixedRule(Precision precision) : precision_(precision) {}

  void Resolve(const LayerDemand&, std::span<Action> actions) override {
    std::ranges::fill(actions, Action{ActionKind::kUse, precision_});
  }
  Precision PrefetchPrecision(const ExpertKey&, Precision guessed) const override {
    return precision_ == kReferencePrecision ? guessed : precision_;
  }

 private:
  const Precision precision_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FidelityRule>> MakeExactRule(const PartContext&, const PartOptions&) {
  return std::make_unique<FixedRule>(kReferencePrecision);
}
absl::StatusOr<std::unique_ptr<FidelityRule>> MakeLowestRule(const PartContext& context, const PartOptions&) {
  return std::make_unique<FixedRule>(static_cast<Precision>(context.model.precisions - 1));
}

}  // namespace moed
