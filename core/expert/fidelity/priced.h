// The project's own rule: what a token may lose is spent where it saves the most waiting.
#pragma once

#include <memory>

#include "core/expert/fidelity/rule.h"
#include "core/expert/part_context.h"
#include "core/expert/part_options.h"

namespace moed {

inline constexpr OptionRow kPricedSkipPart{
    "priced-skip-part", "part of what a token may lose up to which one choice is left out; a heavier one is only lowered", "0.5",
    0, 1};
inline constexpr OptionRow kPricedFastMass{"priced-fast-mass", "gate mass that a request of the class fast may lose", "0.4", 0,
                                           1};
inline constexpr const OptionRow* kPricedRuleOptions[] = {&kPricedSkipPart, &kPricedFastMass};
absl::StatusOr<std::unique_ptr<FidelityRule>> MakePricedRule(const PartContext& context, const PartOptions& options);

}  // namespace moed
