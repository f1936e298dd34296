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

// Changes nothing; keeps what was routed of one window, to show it to others as a daemon would: an encoder's layers as they were
// routed, the others token by token, as answers come.
class WindowRouting final : public FidelityRule {
 public:
  explicit WindowRouting(int encoder_layers) : encoder_layers_(encoder_layers) {}  // ExpertModelShape's

  void Resolve(const LayerDemand& demand, std::span<Action>) override;
  // Then forgets it. Neither has heard of the sequence before.
  void Teach(SequenceId sequence, EvictionPolicy& policy, ExpertPredictor& predictor);

 private:
  struct Token {
    TokenId token;
    std::vector<ExpertChoice> choices;
  };
  struct Layer {
    LayerId layer;
    std::vector<Token> tokens;
  };
  static TokenRouting Routed(SequenceId sequence, const Layer& layer, size_t token, Phase phase);
  static void TeachSource(SequenceId sequence, std::span<const Layer> layers, EvictionPolicy& policy, ExpertPredictor& predictor);
  // All layers have the same tokens.
  static void TeachAnswer(SequenceId sequence, std::span<const Layer> layers, EvictionPolicy& policy, ExpertPredictor& predictor);

  const int encoder_layers_;
  std::vector<Layer> layers_;
};

}  // namespace moed
