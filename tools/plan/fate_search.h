// What Fate (arXiv 2502.12224) chooses offline. Pure; what a model loses is asked of a function.
#pragma once

#include <map>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

namespace moed {

// Section 4.5: p, the share of a prompt's experts, least popular first, that goes at the low precision.
struct UnpopularShare {
  int percent = 0;
  std::map<int, double> losses;  // by percent, all that were measured; 0 costs nothing
};

// Growth of the perplexity, over that of no expert lowered, at a share of so many percent.
using LossOfShare = absl::FunctionRef<absl::StatusOr<double>(int percent)>;

// The largest share for which it and every smaller one that was measured stay within the tolerable loss: up in tens to the first
// that does not, then by halving to whole percents. (The paper says: by a heuristic search.) Errors of `loss_of` as they are.
absl::StatusOr<UnpopularShare> SearchUnpopularShare(double tolerable_loss, LossOfShare loss_of);
inline constexpr int kMostShares = 14;  // most calls of `loss_of`

// Section 4.4: L, the first layers that are kept whole because their experts are foreseen badly. `recall` by MoE layer; the first
// layer is never foreseen. The paper takes L from a plot; here (ours) it ends at the first layer whose recall is at least
// `share_of_median` (0 to 1) of the median of all foreseen layers.
int ShallowLayers(std::span<const double> recall, double share_of_median);

}  // namespace moed
