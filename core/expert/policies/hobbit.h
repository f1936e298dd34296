// HOBBIT (arXiv 2411.01433), 3.4: recency, frequency, high-precision frequency and layer distance of a sequence in one priority.
#pragma once

#include <memory>

#include "core/expert/policies/eviction_policy.h"

namespace moed {

// Of the four terms of the priority; they sum to 1. The paper calibrates them for a model and gives no values. These are the best
// of a grid on recorded decoding of gpt-oss-20b at one precision, a cache of 10 and of 25 % of the experts and demand only; there
// F and H are the same, so each has half of what frequency got.
struct HobbitWeights {
  double lru = 0.71;
  double lfu = 0.12;
  double lhu = 0.12;
  double fld = 0.05;
};

std::unique_ptr<EvictionPolicy> MakeHobbitPolicy(const ExpertModelShape& context);
// Weights that are negative or do not sum to 1 are a broken invariant of the caller.
std::unique_ptr<EvictionPolicy> MakeHobbitPolicy(const ExpertModelShape& context, const HobbitWeights& weights);

}  // namespace moed
