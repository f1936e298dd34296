#include "core/expert/fidelity/bound.h"

#include <algorithm>
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
  const auto masked = [&](const ExpertChoice& choice) { return logits[choice.expert] == kMasked; };
  const float mass = GateMass(token);
  const auto share_of = [&](const ExpertChoice& choice) { return mass > 0 ? choice.probability / mass : 0; };
  float share = 0;
  for (const ExpertChoice& choice : token.choices) {
    if (!masked(choice)) continue;
    ++token.masked;
    share += share_of(choice);
  }
  bool any = std::any_of(logits.begin(), logits.end(), [](float logit) { return logit != kMasked; });
  for (const ExpertChoice& choice : token.choices) {
    if (any && token.fidelity.Allows(share)) break;
    if (!masked(choice)) continue;
    logits[choice.expert] = unmasked_[choice.expert];
    any = true;
    --token.masked;
    share = token.masked == 0 ? 0 : share - share_of(choice);
  }
  token.masked_share = share;
}

}  // namespace moed
