// The project's own rule: what a token may lose is spent where it saves the most waiting.
#pragma once

#include <memory>

#include "core/expert/fidelity/rule.h"
#include "core/expert/part_context.h"
#include "core/expert/part_options.h"

namespace moed {

inline constexpr OptionRow kPricedSkipBelow{
    "priced-skip-below",
    "an expert of at most this share of its token's gate mass may be left out; a heavier one is only lowered", "0.05", 0, 1};
inline constexpr OptionRow kPricedFastMass{"priced-fast-mass", "gate mass that a request of the class fast may lose", "0.2", 0,
                                           1};
inline constexpr const OptionRow* kPricedRuleOptions[] = {&kPricedSkipBelow, &kPricedFastMass};
absl::StatusOr<std::unique_ptr<FidelityRule>> MakePricedRule(const PartContext& context, const PartOptions& options);

}  // namespace moed
