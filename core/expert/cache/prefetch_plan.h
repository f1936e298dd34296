// Which guesses are worth a read.
#pragma once

#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/expert/predictors/predictor.h"
#include "core/expert/residency_view.h"

namespace moed {

// How many layers ahead guesses are looked at: up to the nearest layer that lacks one where the budget has it so, else all.
int FarthestLayer(const ResidencyView& residents, std::span<const Guess> guesses, const PrefetchBudget& budget);

// Of several sequences, with true probabilities. Those that want the same expert make one guess: that any of them uses it, at the
// best precision that is wanted.
void OrderByLikelihood(std::vector<Guess>& guesses);

// Pure: guesses of all sequences, best first, to the loads worth queueing: no duplicates, nothing resident or loading at the
// precision of the guess or a better one.
std::vector<CachedKey> PlanPrefetch(const ResidencyView& residents, std::span<const Guess> guesses, const PrefetchBudget& budget);

}  // namespace moed
