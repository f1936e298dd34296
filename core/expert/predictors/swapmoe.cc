#include "core/expert/predictors/swapmoe.h"

#include <utility>

#include "core/base/status.h"
#include "core/expert/swapmoe/options.h"

namespace moed {
namespace {

constexpr size_t kLoadsALayer = 16;  // that may begin, one after the other, before the next layer says again what is due

// Foresees nothing: its guesses are the loads that are due.
class SwapMoePredictor final : public ExpertPredictor {
 public:
  explicit SwapMoePredictor(std::shared_ptr<SwapMoeExperts> experts) : experts_(std::move(experts)) {}

  void OnRouted(const LayerRouting& routing) override {
    experts_->OnRouted(routing.layer);
    told_ = false;
  }
  void Predict(SequenceId, LayerId from, std::vector<Guess>& best_first) override {
    if (std::exchange(told_, true)) return;  // another sequence of the step asks
    experts_->Due(from, kLoadsALayer, best_first);
  }
  std::optional<PrefetchBudget> Budget(const ReadingPace&) const override { return PrefetchBudget{.max_loads = kLoadsALayer}; }

 private:
  const std::shared_ptr<SwapMoeExperts> experts_;
  bool told_ = false;
};

}  // namespace

std::unique_ptr<ExpertPredictor> MakeSwapMoePredictor(std::shared_ptr<SwapMoeExperts> experts) {
  return std::make_unique<SwapMoePredictor>(std::move(experts));
}

absl::StatusOr<std::unique_ptr<ExpertPredictor>> MakeSwapMoePredictor(const PartContext& context, const PartOptions& options) {
  MOED_ASSIGN_OR_RETURN(std::shared_ptr<SwapMoeExperts> experts, SharedSwapMoeExperts(context, options));
  return MakeSwapMoePredictor(std::move(experts));
}

}  // namespace moed
