#include <algorithm>

#include "core/expert/fidelity.h"

namespace moed {

std::vector<CachedKey> PlanPrefetch(const ResidencyView& residents, std::span<const Guess> guesses,
                                    const PrefetchBudget& budget) {
  std::vector<CachedKey> plan;
  for (const Guess& guess : guesses) {
    if (plan.size() >= static_cast<size_t>(std::max(budget.max_loads, 0))) break;
    const CachedKey key{guess.key.layer, guess.key.expert, guess.precision};
    if (!(guess.probability >= budget.min_probability) || residents.Resident(key) || residents.Loading(key)) continue;
    if (std::find(plan.begin(), plan.end(), key) == plan.end()) plan.push_back(key);
  }
  return plan;
}

}  // namespace moed
