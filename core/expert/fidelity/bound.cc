#include "core/expert/fidelity/bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/check.h"

namespace moed {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

void TakeWhatIsFree(const LayerDemand& demand, int precisions, std::span<Action> actions) {
  for (size_t i = 0; i < actions.size(); ++i) {
    if (actions[i] == kExactly) continue;
    if (demand.Resident(demand.wanted[i])) actions[i] = kExactly;
    for (int p = 1; p < precisions && actions[i].kind == ActionKind::kSkip; ++p) {
      const auto precision = static_cast<Precision>(p);
      if (demand.Resident(demand.wanted[i], precision)) actions[i] = {ActionKind::kUse, precision};
    }
  }
}

// Of the token's gate mass. The sum of all choices, taken in the same order, is exactly 1.
float ShareLost(const LayerDemand& demand, const TokenRouting& token, std::span<const Action> actions) {
  float lost = 0;
  for (const ExpertChoice& choice : token.choices) {
    const int position = demand.positions[choice.expert];
    if (position >= 0 && actions[position] != kExactly) lost += choice.probability;
  }
  const float mass = GateMass(token);
  return mass > 0 ? lost / mass : 0;
}

void Restore(const LayerDemand& demand, const TokenRouting& token, std::span<Action> actions) {
  const bool exact = token.fidelity.exact();
  for (const ExpertChoice& choice : token.choices) {
    if (!exact && token.fidelity.Allows(ShareLost(demand, token, actions) + token.masked_share)) return;
    const int position = demand.positions[choice.expert];
    if (position >= 0) actions[position] = kExactly;
  }
}

}  // namespace

void HoldBounds(const LayerDemand& demand, int precisions, std::span<Action> actions, std::span<float> lost,
                bool take_what_is_free) {
  for (const Action& action : actions) MOED_CHECK(action.precision < precisions);
  if (take_what_is_free) TakeWhatIsFree(demand, precisions, actions);
  for (const TokenRouting& token : demand.routing.tokens) Restore(demand, token, actions);
  for (size_t t = 0; t < lost.size(); ++t) {
    const TokenRouting& token = demand.routing.tokens[t];
    lost[t] = token.masked_share + ShareLost(demand, token, actions);
  }
}

void BoundedMask::Apply(LayerId layer, const ResidencyView& residents, std::span<float> logits, TokenRouting& token) {
  if (token.fidelity.exact()) return;
  unmasked_.assign(logits.begin(), logits.end());
  mask_->Apply(layer, token, residents, logits);
  ChooseUnmasked(unmasked_);
  float share = 0;
  for (const ExpertChoice& choice : choices_) {
    if (logits[choice.expert] != kMasked) continue;
    ++token.masked;
    share += choice.probability;
  }
  const auto left = [](float logit) { return logit != kMasked; };
  bool any = std::any_of(logits.begin(), logits.end(), left);
  for (const ExpertChoice& choice : choices_) {
    if (any && token.fidelity.Allows(share)) break;
    if (logits[choice.expert] != kMasked) continue;
    logits[choice.expert] = unmasked_[choice.expert];
    any = true;
    --token.masked;
    share = token.masked == 0 ? 0 : share - choice.probability;
  }
  token.masked_share = share;
}

// As the router's top-k: ties to the lower index.
void BoundedMask::ChooseUnmasked(std::span<const float> logits) {
  const size_t count = std::min(logits.size(), static_cast<size_t>(top_k_));
  choices_.assign(logits.size(), {});
  for (size_t i = 0; i < logits.size(); ++i) choices_[i] = {static_cast<int32_t>(i), logits[i]};
  std::partial_sort(choices_.begin(), choices_.begin() + static_cast<std::ptrdiff_t>(count), choices_.end(),
                    [](const ExpertChoice& a, const ExpertChoice& b) {
                      return a.probability != b.probability ? a.probability > b.probability : a.expert < b.expert;
                    });
  choices_.resize(count);
  const float highest = choices_.front().probability;
  float sum = 0;
  for (ExpertChoice& choice : choices_) sum += choice.probability = std::exp(choice.probability - highest);
  for (ExpertChoice& choice : choices_) choice.probability /= sum;
}

}  // namespace moed
