// What is lowered, masked or prefetched: rows of tables and pure functions over a view of what is resident.
#pragma once

#include <climits>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/expert/predictor.h"
#include "core/expert/routing.h"

namespace moed {

// A snapshot that costs nothing: queries under the cache's lock. Valid during the call it is passed to.
class ResidencyView {
 public:
  virtual ~ResidencyView() = default;
  virtual bool Resident(CachedKey key) const = 0;
  virtual bool Loading(CachedKey key) const = 0;  // queued or reading
};

// Before top-k (masked gating); changes logits (experts) in place.
class RouterMask {
 public:
  virtual ~RouterMask() = default;
  virtual void Apply(LayerId layer, const ResidencyView& residents, std::span<float> logits) const = 0;
};
struct RouterMaskRow {
  std::string_view name;  // "none"
  std::unique_ptr<RouterMask> (*make)(const PolicyContext& context);
};
std::span<const RouterMaskRow> RouterMasks();
absl::StatusOr<std::unique_ptr<RouterMask>> MakeRouterMask(std::string_view name, const PolicyContext& context);

// One distinct expert wanted by a layer of a step.
struct WantedExpert {
  int32_t expert = 0;
  float probability = 0;  // highest among the tokens that chose it
  float mass_before = 0;  // smallest sum of the probabilities ranked before it, over those tokens (HOBBIT's score s)
};

enum class ActionKind : uint8_t { kUse, kSkip };  // kUse: at `precision`, waiting for the load if it is not resident
struct Action {
  ActionKind kind = ActionKind::kUse;
  Precision precision = kReferencePrecision;
};

// What to do with each wanted expert, after top-k. "exact" uses the reference precision always.
class FidelityRule {
 public:
  virtual ~FidelityRule() = default;
  virtual void Resolve(LayerId layer, std::span<const WantedExpert> wanted, const ResidencyView& residents,
                       std::span<Action> actions) const = 0;
};
struct FidelityRow {
  std::string_view name;  // "exact"
  std::unique_ptr<FidelityRule> (*make)(const PolicyContext& context);
};
std::span<const FidelityRow> FidelityRules();
absl::StatusOr<std::unique_ptr<FidelityRule>> MakeFidelityRule(std::string_view name, const PolicyContext& context);

struct PrefetchBudget {
  int max_loads = 0;  // reads this plan may add
  float min_probability = 0;
  int max_loading = INT_MAX;  // guesses being read or waiting for it at once
  bool when_idle = false;     // nothing is begun while a demand is being read
};
// Pure: guesses of all sequences, best first, to the loads worth queueing: no duplicates, nothing resident or loading.
std::vector<CachedKey> PlanPrefetch(const ResidencyView& residents, std::span<const Guess> guesses, const PrefetchBudget& budget);

}  // namespace moed
