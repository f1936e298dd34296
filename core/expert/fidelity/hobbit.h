// HOBBIT, arXiv 2411.01433, section 3.2: at a miss the expert's score decides between the high precision, the low one and none.
#pragma once

#include <memory>

#include "core/expert/fidelity/hobbit_plan.h"
#include "core/expert/fidelity/rule.h"
#include "core/expert/part_context.h"
#include "core/expert/part_options.h"

namespace moed {

inline constexpr OptionRow kHobbitT1{"hobbit-t1",
                                     "up to this gate mass before it, a missing expert is read at the reference precision",
                                     "0.6",
                                     0,
                                     1,
                                     "",
                                     "HOBBIT, arXiv 2411.01433, 3.2"};
inline constexpr OptionRow kHobbitT2{"hobbit-t2",
                                     "up to this gate mass before it at the low precision, beyond it not at all",
                                     "0.9",
                                     0,
                                     1,
                                     "",
                                     "HOBBIT, arXiv 2411.01433, 3.2"};
inline constexpr const OptionRow* kHobbitRuleOptions[] = {&kHobbitT1, &kHobbitT2, &kHobbitPlanOption};

// What was given, else what the file says, else the defaults. INVALID_ARGUMENT unless 0 <= T1 <= T2 <= 1.
absl::StatusOr<HobbitThresholds> HobbitThresholdsOf(const PartOptions& options);
absl::Status CheckHobbitRuleOptions(const PartOptions& options);

absl::StatusOr<std::unique_ptr<FidelityRule>> MakeHobbitRule(const PartContext& context, const PartOptions& options);

}  // namespace moed
