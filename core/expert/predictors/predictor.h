// Which experts will be wanted soon. One row of a table per predictor.
#pragma once

#include <climits>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/expert/learning/activation_paths.h"
#include "core/expert/policies/eviction_policy.h"
#include "core/expert/routing.h"

namespace moed {

struct Guess {
  ExpertKey key;
  float probability = 0;
  int layer_distance = 1;  // in MoE layers from the layer it was guessed at
  Precision precision = kReferencePrecision;
};

// Router probabilities (experts) that `layer`'s gate gives for `hidden`; injected by the application, since the router's weights
// belong to the model. Called on the engine's thread.
using GateFn = std::function<void(LayerId layer, std::span<const float> hidden, std::span<float> probabilities)>;

struct PredictorContext {
  ExpertModelShape model;
  int hidden = 0;
  GateFn gate;
  int look_ahead = 3;  // layers whose gates stacked-gate asks (HOBBIT's p)
  // Of the gate mass ranked before an expert: up to high_mass it is read at the reference precision, up to low_mass at the last
  // one, beyond not at all (HOBBIT's T1 and T2). At 1, nothing is lowered.
  float high_mass = 1;
  float low_mass = 1;
  float unpopular_share = 0;  // of the experts that a prompt wants: the least popular, read at the last precision (Fate's p)
  std::shared_ptr<const ActivationPaths> paths;  // made offline; null: learned while serving
};

// What is read of the guesses made at one layer.
struct PrefetchBudget {
  int max_loads = 0;  // reads this plan may add
  float min_probability = 0;
  int max_loading = INT_MAX;              // guesses being read or waiting for it at once
  bool when_idle = false;                 // nothing is begun while a demand is being read
  bool first_missing_layer_only = false;  // of the layers ahead, only the nearest one that lacks a guess
  bool keep_guessed = false;              // guessed residents stay until their layer has come, while anything else can leave
};

// Measured where guesses are read.
struct ReadingPace {
  Phase phase = Phase::kDecode;
  int records_a_layer = 0;  // that can be read whole in the time that a layer takes to compute
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
  virtual size_t memory_bytes() const { return 0; }  // tables; counted in the budget
};

struct PredictorRow {
  std::string_view name;  // "none"
  std::string_view description;
  std::unique_ptr<ExpertPredictor> (*make)(const PredictorContext& context);
  bool needs_gate = false;  // recorded routing has none
};
std::span<const PredictorRow> Predictors();
// INVALID_ARGUMENT for an unknown name, for settings outside their range and for a gate that is needed and not there.
absl::StatusOr<std::unique_ptr<ExpertPredictor>> MakePredictor(std::string_view name, const PredictorContext& context);

}  // namespace moed
