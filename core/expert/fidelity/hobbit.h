// HOBBIT, arXiv 2411.01433, section 3.2: at a miss the expert's score decides between the high precision, the low one and none.
#pragma once

#include "core/expert/fidelity/rule.h"

namespace moed {

inline constexpr OptionRow kHobbitOptions[] = {
    {"hobbit-t1", "up to this gate mass before it, a missing expert is read at the reference precision", "0.6", 0, 1},
    {"hobbit-t2", "up to this gate mass before it at the low precision, beyond it not at all", "0.9", 0, 1},
};
absl::StatusOr<std::unique_ptr<FidelityRule>> MakeHobbitRule(const RuleContext& context);

}  // namespace moed
