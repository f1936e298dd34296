
#include "core/expert/cache/prefetch_plan.h"

#include <algorithm>

namespace moed {
namespace {

// Precisions are ordered: the reference is 0, the last one the lowest.
bool IsThere(const ResidencyView& residents, const Guess& guess) {
  for (int precision = 0; precision <= guess.precision; ++precision) {
    const CachedKey key{guess.key.layer, guess.key.expert, static_cast<Precision>(precision)};
    if (residents.Resident(key) || residents.Loading(key)) return true;
  }
  return false;
}

bool Lacks(const ResidencyView& residents, const Guess& guess, const PrefetchBudget& budget) {
  return guess.probability >= budget.min_probability && !IsThere(residents, guess);
}

}  // namespace

int FarthestLayer(const ResidencyView& residents, std::span<const Guess> guesses, const PrefetchBudget& budget) {
  int farthest = INT_MAX;
  if (!budget.first_missing_layer_only) return farthest;
  for (const Guess& guess : guesses) {
    if (guess.layer_distance < farthest && Lacks(residents, guess, budget)) farthest = guess.layer_distance;
  }
  return farthest;
}

void OrderByLikelihood(std::vector<Guess>& guesses) {
  std::ranges::sort(guesses, {}, &Guess::key);
  size_t last = 0;
  for (size_t i = 1; i < guesses.size(); ++i) {
    const Guess& next = guesses[i];
    Guess& same = guesses[last];
    if (same.key != next.key) {
      guesses[++last] = next;
      continue;
    }
    same.probability = 1 - (1 - same.probability) * (1 - next.probability);
    same.precision = std::min(same.precision, next.precision);
  }
  if (!guesses.empty()) guesses.resize(last + 1);
  std::sort(guesses.begin(), guesses.end(), [](const Guess& a, const Guess& b) {
    return a.probability != b.probability ? a.probability > b.probability : a.key < b.key;
  });
}

std::vector<CachedKey> PlanPrefetch(const ResidencyView& residents, std::span<const Guess> guesses,
                                    const PrefetchBudget& budget) {
  const int farthest = FarthestLayer(residents, guesses, budget);
  std::vector<CachedKey> plan;
  for (const Guess& guess : guesses) {
    if (plan.size() >= static_cast<size_t>(std::max(budget.max_loads, 0))) break;
    if (guess.layer_distance > farthest || !Lacks(residents, guess, budget)) continue;
    const CachedKey key{guess.key.layer, guess.key.expert, guess.precision};
    const auto same = [&key](const CachedKey& planned) { return planned.expert_key() == key.expert_key(); };
    if (const auto planned = std::ranges::find_if(plan, same); planned == plan.end()) {
      plan.push_back(key);
    } else {
      planned->precision = std::min(planned->precision, key.precision);  // sequences may want it at several: the best serves all
    }
  }
  return plan;
}

}  // namespace moed
