#include "core/expert/fidelity/fate.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "core/base/status.h"

namespace moed {
namespace {

class FateRule final : public FidelityRule {
 public:
  FateRule(double prefill_low, const ExpertModelShape& model)
      : prefill_low_(prefill_low), top_k_(model.top_k), low_(static_cast<Precision>(model.precisions - 1)) {}

  // A step in which anybody is answered follows the rule of answers: ours, the paper serves one request.
  void Resolve(const LayerDemand& demand, std::span<Action> actions) override {
    if (demand.phase == Phase::kPrefill) {
      LowerUnpopular(demand, actions);
    } else if (SlowLink(demand.prices)) {
      for (size_t i = 0; i < actions.size(); ++i) {
        if (demand.Missing(demand.wanted[i])) actions[i].precision = low_;
      }
    }
  }

 private:
  // The paper's link is slow on one of its machines (5.3). Ours: a layer's time does not read what a token wants of a layer, its
  // n = T / t_expert < k. So guesses are read at the reference precision beside misses that are not.
  bool SlowLink(const Prices& prices) const {
    return !prices.read_seconds.empty() && prices.layer_seconds > 0 &&
           prices.read_seconds[kReferencePrecision] * top_k_ > prices.layer_seconds;
  }

  void LowerUnpopular(const LayerDemand& demand, std::span<Action> actions) {
    order_.resize(actions.size());
    for (size_t i = 0; i < order_.size(); ++i) order_[i] = i;
    const size_t low = static_cast<size_t>(prefill_low_ * static_cast<double>(actions.size()));
    const auto popularity = [&](size_t i) {
      const WantedExpert& expert = demand.wanted[i];
      return std::tuple(expert.tokens, expert.share, -expert.expert);
    };
    std::nth_element(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(low), order_.end(),
                     [&](size_t a, size_t b) { return popularity(a) < popularity(b); });
    for (size_t rank = 0; rank < low; ++rank) {
      const size_t i = order_[rank];
      if (demand.Missing(demand.wanted[i])) actions[i].precision = low_;
    }
  }

  const double prefill_low_;
  const int top_k_;
  const Precision low_;
  std::vector<size_t> order_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FidelityRule>> MakeFateRule(const PartContext& context, const PartOptions& options) {
  MOED_ASSIGN_OR_RETURN(const double prefill_low, FatePrefillLow(options));
  return std::make_unique<FateRule>(prefill_low, context.model);
}

}  // namespace moed
