// A policy and a predictor that learn, and what they learn from.
#pragma once

#include <memory>
#include <vector>

#include "tests/expert/provider_rig.h"

namespace moed {

struct LearnedParts {
  explicit LearnedParts(size_t table_bytes = 1 << 16) {
    ExpertModelShape context = StoreContext();
    context.table_bytes = table_bytes;
    policy = MakePolicy("learned", context).value();
    predictor = MakePredictor("learned", {.model = context}).value();
  }

  // Tokens that take turns, each with experts of its own.
  void Learn(int tokens) {
    const SequenceId sequence{1};
    policy->OnSequenceStart(sequence);
    predictor->OnSequenceStart(sequence);
    std::vector<Guess> guesses;
    for (int i = 0; i < tokens; ++i) {
      const TokenId token(i % 3);
      policy->OnToken(sequence, token);
      predictor->OnToken(sequence, token);
      for (const LayerId layer : kLayers) {
        const ExpertChoice choices[] = {{i % 3, 0.7f}, {3, 0.3f}};
        const TokenRouting routing[] = {{sequence, token, Phase::kDecode, choices}};
        policy->OnRouted({layer, routing});
        predictor->OnRouted({layer, routing});
        guesses.clear();
        predictor->Predict(sequence, layer, guesses);
        for (const Guess& guess : guesses) ExpectGuess(guess, layer);
      }
    }
    policy->OnSequenceEnd(sequence);
    predictor->OnSequenceEnd(sequence);
  }
  static void ExpectGuess(const Guess& guess, LayerId from) {
    EXPECT_GT(guess.key.layer, from);
    EXPECT_LE(guess.key.layer, kThird);
    EXPECT_GE(guess.key.expert, 0);
    EXPECT_LT(guess.key.expert, kExperts);
    EXPECT_GE(guess.probability, 0.f);
    EXPECT_LE(guess.probability, 1.f);
  }

  std::unique_ptr<EvictionPolicy> policy;
  std::unique_ptr<ExpertPredictor> predictor;
};

}  // namespace moed
