#include "core/expert/fidelity/priced.h"

#include <algorithm>
#include <vector>

#include "core/base/status.h"

namespace moed {
namespace {

constexpr float kRounding = 1e-6f;     // of sums of shares; the bound itself is held elsewhere
constexpr double kLeftOfComing = 0.5;  // of a guess's read, on average

// A layer waits while its missing experts are read, as far as its own computation does not hide that. Of the ways to wait less,
// the one that saves the most seconds for the gate mass it costs comes first, until nothing is left to save or to lose. What is
// not read now is missing later as often as a record that was read is used again, which costs a read then; what is being read
// comes whether it is waited for or not. A guess that is still queued is taken for one of these, though it ends with its layer's
// turn. Light choices are left out, which saves all of a read; heavy ones are lowered, which keeps most of what they add.
class PricedRule final : public FidelityRule {
 public:
  PricedRule(double skip_part, double fast_mass, int precisions)
      : skip_part_(static_cast<float>(skip_part)),
        fast_mass_(static_cast<float>(fast_mass)),
        lowest_(static_cast<Precision>(precisions - 1)) {}

  void Resolve(const LayerDemand& demand, std::span<Action> actions) override {
    if (demand.prices.read_seconds.empty()) return;
    double waiting = -demand.prices.experts_seconds;
    offers_.clear();
    for (size_t i = 0; i < actions.size(); ++i) {
      if (demand.Resident(demand.wanted[i])) continue;
      const bool coming = !demand.Missing(demand.wanted[i]);
      const double left = (coming ? kLeftOfComing : 1) * demand.prices.read_seconds[kReferencePrecision];
      waiting += left;
      Offer(demand, static_cast<int>(i), coming, left);
    }
    if (waiting <= 0 || offers_.empty()) return;
    ListTokens(demand);
    std::sort(offers_.begin(), offers_.end(),
              [](const Saving& a, const Saving& b) { return a.worth != b.worth ? a.worth > b.worth : a.wanted < b.wanted; });
    for (const Saving& offer : offers_) {
      if (waiting <= 0) return;
      if (!Spend(offer.wanted)) continue;
      actions[offer.wanted] = offer.action;
      waiting -= offer.seconds;
    }
  }

 private:
  struct Saving {
    int wanted;  // index
    Action action;
    double seconds;  // of this wait
    double worth;    // seconds by share of the gate mass, less those that it costs later
  };
  struct Use {
    int token;
    float share;
  };

  float MayLose(Fidelity fidelity) const { return fidelity.fast() ? fast_mass_ : fidelity.share(); }

  // `left`: seconds until it is read.
  void Offer(const LayerDemand& demand, int i, bool coming, double left) {
    const WantedExpert& expert = demand.wanted[i];
    if (expert.fidelity.exact() || expert.share <= 0) return;
    const bool low_is_here = lowest_ != kReferencePrecision && demand.Resident(expert, lowest_);
    const bool may_skip = lowest_ == kReferencePrecision || expert.share <= skip_part_ * MayLose(expert.fidelity) + kRounding;
    Saving saving{i, {ActionKind::kUse, lowest_}, left, 0};
    if (!low_is_here && may_skip) {
      saving.action = {ActionKind::kSkip};
    } else if (!low_is_here) {
      if (coming) return;  // a low copy would be read behind it
      saving.seconds -= demand.prices.read_seconds[lowest_];
    }
    const double lost_later = coming ? 0 : demand.prices.reuse * left;
    saving.worth = (saving.seconds - lost_later) / expert.share;
    if (saving.worth > 0) offers_.push_back(saving);
  }

  // To uses_: who chose each wanted expert; to left_: what each token may still lose.
  void ListTokens(const LayerDemand& demand) {
    const std::span<const TokenRouting> tokens = demand.routing.tokens;
    left_.clear();
    uses_.resize(std::max(uses_.size(), demand.wanted.size()));
    for (std::vector<Use>& uses : uses_) uses.clear();
    for (size_t t = 0; t < tokens.size(); ++t) {
      left_.push_back(MayLose(tokens[t].fidelity) - tokens[t].masked_share);
      const float mass = GateMass(tokens[t]);
      for (const ExpertChoice& choice : tokens[t].choices) {
        const int wanted = demand.positions[choice.expert];
        if (wanted >= 0 && mass > 0) uses_[wanted].push_back({static_cast<int>(t), choice.probability / mass});
      }
    }
  }

  bool Spend(int wanted) {
    for (const Use& use : uses_[wanted]) {
      if (use.share > left_[use.token] + kRounding) return false;
    }
    for (const Use& use : uses_[wanted]) left_[use.token] -= use.share;
    return true;
  }

  const float skip_part_;
  const float fast_mass_;
  const Precision lowest_;

  std::vector<Saving> offers_;
  std::vector<std::vector<Use>> uses_;
  std::vector<float> left_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<FidelityRule>> MakePricedRule(const PartContext& context, const PartOptions& options) {
  MOED_ASSIGN_OR_RETURN(const double skip_part, options.Number(kPricedSkipPart));
  MOED_ASSIGN_OR_RETURN(const double fast_mass, options.Number(kPricedFastMass));
  return std::make_unique<PricedRule>(skip_part, fast_mass, context.model.precisions);
}

}  // namespace moed
