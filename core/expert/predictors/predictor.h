// Which experts will be wanted soon.
#pragma once

#include <climits>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/expert/guess.h"
#include "core/expert/routing.h"

namespace moed {

class LearnedState;

// What is read of the guesses made at one layer. Whatever it says, they are read one at a time, and only while nothing else is.
struct PrefetchBudget {
  int max_loads = 0;  // reads this plan may add
  float min_probability = 0;
  bool first_missing_layer_only = false;  // of the layers ahead, only the nearest one that lacks a guess
  bool give_way = false;                  // in pieces between which demands go first, and no further once known to be wrong
  bool between_tokens = false;            // after the last layer, as far as it pays, what the policy wishes for
  bool keep_guessed = false;  // guessed residents of layers looked at stay until theirs has come, while anything else can leave
};

// Measured where guesses are read.
struct ReadingPace {
  Phase phase = Phase::kDecode;
  double records_a_layer = 0;  // that can be read in the time that a layer takes to compute; 0: not known yet
};

// Told what is known as soon as it is known; each hook may be ignored. Engine thread only.
class ExpertPredictor {
 public:
  virtual ~ExpertPredictor() = default;
  virtual void OnSequenceStart(SequenceId) {}
  virtual void OnSequenceEnd(SequenceId) {}
  virtual void OnToken(SequenceId, TokenId) {}
  // The gate's input of a layer (hidden): of the last token of each sequence; and of every token of the step, in order.
  virtual void OnGateInput(SequenceId, LayerId, std::span<const float> /*hidden*/) {}
  virtual void OnTokenGateInput(SequenceId, LayerId, std::span<const float> /*hidden*/) {}
  virtual void OnRouted(const LayerRouting&) {}
  // As ExpertProvider's. Who wants previews is asked to Predict again after them: from the same layer, whose experts are
  // computed.
  virtual bool wants_previews() const { return false; }
  virtual void OnGatePreview(SequenceId, LayerId /*next*/, std::span<const float> /*hidden*/) {}
  // Appends guesses, best first, for the layers after `from` as far as this sequence is concerned.
  virtual void Predict(SequenceId sequence, LayerId from, std::vector<Guess>& best_first) = 0;
  // Its probabilities are true ones: the provider asks only while guesses pay, and reads those that do (prefetch_pace.h).
  virtual bool paced() const { return false; }
  // What its source says is read of its guesses; nullopt: what the provider was told. Not asked where guesses are paced.
  virtual std::optional<PrefetchBudget> Budget(const ReadingPace&) const { return std::nullopt; }
  // As EvictionPolicy::Popularity.
  virtual void Popularity(LayerId, std::span<float> /*of_experts*/) const {}
  // Shows what is worth keeping for the next start of the daemon (learned_state.h). Overwritten before the first sequence only.
  virtual void VisitLearned(LearnedState&) {}
  virtual size_t memory_bytes() const { return 0; }  // tables: no more than its row says
};

}  // namespace moed
