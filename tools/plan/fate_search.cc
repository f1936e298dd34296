#include "tools/plan/fate_search.h"

#include <algorithm>
#include <vector>

#include "core/base/check.h"
#include "core/base/median.h"
#include "core/base/status.h"

namespace moed {
namespace {

constexpr int kStepPercent = 10;

}  // namespace

absl::StatusOr<UnpopularShare> SearchUnpopularShare(double tolerable_loss, LossOfShare loss_of) {
  UnpopularShare found{.losses = {{0, 0}}};
  int beyond = 100 + kStepPercent;
  const auto within = [&](int percent) -> absl::StatusOr<bool> {
    MOED_ASSIGN_OR_RETURN(found.losses[percent], loss_of(percent));
    return found.losses[percent] <= tolerable_loss;
  };
  for (int percent = kStepPercent; percent < beyond; percent += kStepPercent) {
    MOED_ASSIGN_OR_RETURN(const bool does, within(percent));
    (does ? found.percent : beyond) = percent;
  }
  while (found.percent < 100 && beyond - found.percent > 1) {
    const int middle = found.percent + (beyond - found.percent) / 2;
    MOED_ASSIGN_OR_RETURN(const bool does, within(middle));
    (does ? found.percent : beyond) = middle;
  }
  return found;
}

int ShallowLayers(std::span<const double> recall, double share_of_median) {
  MOED_CHECK(!recall.empty() && share_of_median >= 0 && share_of_median <= 1);
  std::vector<double> foreseen(recall.begin() + 1, recall.end());
  if (foreseen.empty()) return 1;
  const double least = share_of_median * Median(foreseen);
  const auto deep = std::find_if(recall.begin() + 1, recall.end(), [least](double r) { return r >= least; });
  return static_cast<int>(deep - recall.begin());
}

}  // namespace moed
