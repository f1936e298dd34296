// Fate, arXiv 2502.12224, section 3.4: popularity-aware hybrid precision in a prompt, low precision for unforeseen misses of an
// answer where the link is slow.
#pragma once

#include "core/expert/fidelity/rule.h"

namespace moed {

inline constexpr OptionRow kFateOptions[] = {
    {"fate-prefill-low", "p: share of a layer's chosen experts, the least popular ones, that a prompt takes at the low precision",
     "0.25", 0, 1},
};
absl::StatusOr<std::unique_ptr<FidelityRule>> MakeFateRule(const RuleContext& context);

}  // namespace moed
