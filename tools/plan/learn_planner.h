// moed-plan learn: what the preset auto would learn from serving a text, learned before it serves anybody.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/expert_choice.h"
#include "core/expert/fidelity/rule.h"
#include "core/expert/policies/eviction_policy.h"
#include "core/expert/predictors/predictor.h"
#include "tools/plan/planner.h"

namespace moed {

std::unique_ptr<Planner> MakeLearnPlanner();

// Changes nothing; keeps what was routed in one step of one sequence, to show it to others token by token, as answers come.
class StepRouting final : public FidelityRule {
 public:
  void Resolve(const LayerDemand& demand, std::span<Action>) override;
  // Then forgets it. Neither has heard of the sequence before.
  void Teach(SequenceId sequence, EvictionPolicy& policy, ExpertPredictor& predictor);
  size_t tokens() const { return layers_.empty() ? 0 : layers_.front().tokens.size(); }

 private:
  struct Token {
    TokenId token;
    std::vector<ExpertChoice> choices;
  };
  struct Layer {
    LayerId layer;
    std::vector<Token> tokens;
  };
  std::vector<Layer> layers_;
};

}  // namespace moed
