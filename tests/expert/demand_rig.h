// A layer's demand without a cache: tokens, residents and prices as the test says.
#pragma once

#include <set>

#include "core/expert/cache/demand.h"
#include "tests/expert/provider_rig.h"

namespace moed {

inline constexpr LayerId kDemandLayer(0);

class SetOfResidents final : public ResidencyView {
 public:
  explicit SetOfResidents(const std::set<CachedKey>& resident, const std::set<CachedKey>& loading = {})
      : resident_(resident), loading_(loading) {}
  bool Resident(CachedKey key) const override { return resident_.contains(key); }
  bool Loading(CachedKey key) const override { return loading_.contains(key); }

 private:
  const std::set<CachedKey> resident_;
  const std::set<CachedKey> loading_;
};

class DemandRig {
 public:
  void Add(SequenceId sequence, std::vector<ExpertChoice> choices, Fidelity fidelity, Phase phase = Phase::kDecode) {
    choices_.push_back(std::move(choices));
    tokens_.push_back({.sequence = sequence, .phase = phase, .choices = choices_.back(), .fidelity = fidelity});
  }
  TokenRouting& token(size_t i) { return tokens_[i]; }

  // Valid until the next call.
  const LayerDemand& Demand() {
    routing_ = {kDemandLayer, tokens_};
    wanted_.Collect(routing_);
    view_.emplace(resident, loading);
    prices_ = {read_seconds, layer_seconds, experts_seconds, reuse};
    return demand_.emplace(LayerDemand{routing_, wanted_.experts(), wanted_.positions(), wanted_.phase(), *view_, prices_});
  }
  // What a rule proposes: one action for each wanted expert, in order of first appearance.
  std::vector<Action> Resolve(FidelityRule& rule) {
    const LayerDemand& demand = Demand();
    std::vector<Action> actions(demand.wanted.size());
    rule.Resolve(demand, actions);
    return actions;
  }

  std::set<CachedKey> resident;
  std::set<CachedKey> loading;
  std::vector<double> read_seconds;
  double layer_seconds = 0;
  double experts_seconds = 0;
  double reuse = 0;

 private:
  std::vector<std::vector<ExpertChoice>> choices_;  // their own storage stays where it is
  std::vector<TokenRouting> tokens_;
  LayerRouting routing_;
  DemandSet wanted_{kExperts};
  std::optional<SetOfResidents> view_;
  Prices prices_;
  std::optional<LayerDemand> demand_;
};

}  // namespace moed
