// HOBBIT (arXiv 2411.01433), 3.4: recency, frequency, high-precision frequency and layer distance of a sequence in one priority.
#pragma once

#include <memory>

#include "core/expert/fidelity/hobbit_plan.h"
#include "core/expert/part_context.h"
#include "core/expert/part_options.h"
#include "core/expert/policies/eviction_policy.h"

namespace moed {

// Of the four terms of the priority; they sum to 1. The paper calibrates them for a model and gives no values. The defaults are
// the best of a grid on recorded decoding of gpt-oss-20b at one precision, a cache of 10 and of 25 % of the experts and demand
// only; there F and H are the same, so each has half of what frequency got.
inline constexpr OptionRow kHobbitLru{"hobbit-lru", "weight of recency; the four sum to 1", "0.71", 0, 1};
inline constexpr OptionRow kHobbitLfu{"hobbit-lfu", "weight of frequency", "0.12", 0, 1};
inline constexpr OptionRow kHobbitLhu{"hobbit-lhu", "weight of frequency at the reference precision", "0.12", 0, 1};
inline constexpr OptionRow kHobbitFld{"hobbit-fld", "weight of the layer's distance", "0.05", 0, 1};
// The paper says that the high-precision cache is typically the larger one. On recorded decoding of gpt-oss-20b the less is read
// the larger it is (docs/lab-log.md).
inline constexpr OptionRow kHobbitHighCache{"hobbit-high-cache", "share of the cache's bytes for the reference precision", "0.95",
                                            0, 1};
inline constexpr const OptionRow* kHobbitPolicyOptions[] = {&kHobbitLru, &kHobbitLfu,       &kHobbitLhu,
                                                            &kHobbitFld, &kHobbitHighCache, &kHobbitPlanOption};

// What was given, else what the file says, else the defaults. INVALID_ARGUMENT: weights that do not sum to 1.
absl::StatusOr<HobbitTuning> HobbitTuningOf(const PartOptions& options);
absl::Status CheckHobbitPolicyOptions(const PartOptions& options);

// HobbitTuningOf's errors.
absl::StatusOr<std::unique_ptr<EvictionPolicy>> MakeHobbitPolicy(const PartContext& context, const PartOptions& options);
PartMemory HobbitPolicyMemory(const PartContext& context, const PartOptions& options);
// `tuning`: weights that are negative or do not sum to 1 are a broken invariant of the caller.
std::unique_ptr<EvictionPolicy> MakeHobbitPolicy(const ExpertModelShape& context, const HobbitTuning& tuning);

}  // namespace moed
