// moed-plan dictionary: which experts follow which in a text (core/expert/learning/activation_paths.h).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/expert/expert_index.h"
#include "core/expert/fidelity/rule.h"
#include "core/expert/learning/activation_paths.h"
#include "tools/plan/planner.h"

namespace moed {

std::unique_ptr<Planner> MakeDictionaryPlanner();

// How well each token would have been predicted by those before it.
struct DictionaryReport {
  struct Source {
    uint64_t estimates = 0;
    uint64_t chosen = 0;  // experts that the router chose
    uint64_t right = 0;   // of them, among as many of the highest estimates
  };
  std::array<Source, kPathSources> sources{};

  std::string Text() const;
};

// Changes nothing; counts the paths of everything that is routed.
class PathCounter final : public FidelityRule {
 public:
  // `paths` and `report` outlive it. Windows from the one with token `report_from` on are estimated before they are counted;
  // `seen` tokens were in those before.
  PathCounter(const ExpertIndex& experts, size_t report_from, size_t seen, ActivationPaths& paths, DictionaryReport& report);

  // A window of so many tokens is routed next, beside its source's.
  void Begin(int tokens) { seen_tokens_ += static_cast<size_t>(tokens); }
  void Resolve(const LayerDemand& demand, std::span<Action>) override { Count(demand.routing); }
  void Count(const LayerRouting& routing);
  size_t tokens() const { return seen_tokens_; }

 private:
  void Compare(int position, const PathKey& key, const ExpertSet& chosen);

  const ExpertIndex index_;
  const size_t report_from_;
  ActivationPaths& paths_;
  DictionaryReport& report_;
  TokenPaths tokens_;
  size_t seen_tokens_;
  // Scratch. (experts)
  std::vector<float> probabilities_;
  std::vector<int32_t> order_;
};

}  // namespace moed
