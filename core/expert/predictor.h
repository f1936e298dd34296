// Which experts will be wanted soon. One row of a table per predictor.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/expert/policy.h"
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
  PolicyContext model;
  int hidden = 0;
  GateFn gate;
};

// Told what is known as soon as it is known; each hook may be ignored. Engine thread only.
class ExpertPredictor {
 public:
  virtual ~ExpertPredictor() = default;
  virtual void OnSequenceStart(SessionId) {}
  virtual void OnSequenceEnd(SessionId) {}
  virtual void OnToken(SessionId, TokenId) {}
  virtual void OnGateInput(SessionId, LayerId, std::span<const float> /*hidden*/) {}
  virtual void OnRouted(const LayerRouting&) {}
  // Appends guesses, best first, for the layers after `from` as far as this sequence is concerned.
  virtual void Predict(SessionId session, LayerId from, std::vector<Guess>& best_first) = 0;
  // Its probabilities are true ones: the provider asks only while guesses pay, and reads those that do (prefetch_pace.h).
  virtual bool paced() const { return false; }
  virtual size_t memory_bytes() const { return 0; }  // tables; counted in the budget
};

struct PredictorRow {
  std::string_view name;  // "none"
  std::string_view description;
  std::unique_ptr<ExpertPredictor> (*make)(const PredictorContext& context);
};
std::span<const PredictorRow> Predictors();
absl::StatusOr<std::unique_ptr<ExpertPredictor>> MakePredictor(std::string_view name, const PredictorContext& context);

}  // namespace moed
