// A policy and a predictor that learn, and what they learn from.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/expert/learning/learned_state.h"
#include "tests/expert/provider_rig.h"

namespace moed {

// Of one token in one layer.
struct Observed {
  float hidden = 1;          // the gate's input
  float probability = 0.7f;  // of its first expert
};

struct LearnedParts {
  explicit LearnedParts(size_t table_bytes = 1 << 16) {
    ExpertModelShape context = StoreContext();
    context.table_bytes = table_bytes;
    policy = MakePolicy("learned", {context}).value();
    predictor = MakePredictor("learned", {.model = context}).value();
  }

  absl::Status Save(const LearnedFile& file) {
    return SaveLearned(file, [this](LearnedState& state) { Visit(state); });
  }
  absl::StatusOr<LearnedTaken> Take(const LearnedFile& file) {
    return TakeLearned(file, [this](LearnedState& state) { Visit(state); });
  }
  void Visit(LearnedState& state) {
    policy->VisitLearned(state);
    predictor->VisitLearned(state);
  }

  // Tokens that take turns, each with experts of its own.
  void Learn(
      int tokens, const std::function<Observed(int token, LayerId layer)>& observe = [](int, LayerId) { return Observed(); }) {
    const SequenceId sequence{1};
    policy->OnSequenceStart(sequence);
    predictor->OnSequenceStart(sequence);
    std::vector<Guess> guesses;
    for (int i = 0; i < tokens; ++i) {
      const TokenId token(i % 3);
      policy->OnToken(sequence, token);
      predictor->OnToken(sequence, token);
      for (const LayerId layer : kLayers) {
        const Observed observed = observe(i, layer);
        const ExpertChoice choices[] = {{i % 3, observed.probability}, {3, 0.3f}};
        if (gate_inputs) predictor->OnGateInput(sequence, layer, {&observed.hidden, 1});
        TokenRouting routing[] = {{sequence, token, Phase::kDecode, choices}};
        if (i > 0) routing[0].before = TokenId((i - 1) % 3);
        policy->Learn({layer, routing});
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

  bool gate_inputs = false;  // whether the predictor is told of them
  std::unique_ptr<EvictionPolicy> policy;
  std::unique_ptr<ExpertPredictor> predictor;
};

}  // namespace moed
