#include "core/expert/fidelity.h"

#include <algorithm>

#include "core/expert/named_rows.h"

namespace moed {
namespace {

class NoMask final : public RouterMask {
 public:
  void Apply(LayerId, const ResidencyView&, std::span<float>) const override {}
};

class ExactRule final : public FidelityRule {
 public:
  void Resolve(LayerId, std::span<const WantedExpert>, const ResidencyView&, std::span<Action> actions) const override {
    std::fill(actions.begin(), actions.end(), Action{});
  }
};

constexpr RouterMaskRow kRouterMasks[] = {
    {"none", [](const PolicyContext&) -> std::unique_ptr<RouterMask> { return std::make_unique<NoMask>(); }},
};

constexpr FidelityRow kFidelityRules[] = {
    {"exact", [](const PolicyContext&) -> std::unique_ptr<FidelityRule> { return std::make_unique<ExactRule>(); }},
};

}  // namespace

std::span<const RouterMaskRow> RouterMasks() { return kRouterMasks; }
std::span<const FidelityRow> FidelityRules() { return kFidelityRules; }

absl::StatusOr<std::unique_ptr<RouterMask>> MakeRouterMask(std::string_view name, const PolicyContext& context) {
  MOED_ASSIGN_OR_RETURN(const RouterMaskRow* row, FindRow(RouterMasks(), "router mask", name));
  return row->make(context);
}

absl::StatusOr<std::unique_ptr<FidelityRule>> MakeFidelityRule(std::string_view name, const PolicyContext& context) {
  MOED_ASSIGN_OR_RETURN(const FidelityRow* row, FindRow(FidelityRules(), "fidelity rule", name));
  return row->make(context);
}

}  // namespace moed
