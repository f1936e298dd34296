// Recorded routing through the daemon's own expert path: its cache, policies, predictors and read queue, on a simulated disk.
// Nothing is computed; a layer takes a fixed time once its experts are there.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/replay/routing_trace_reader.h"
#include "core/expert/learning/learned_state.h"
#include "core/expert/part_context.h"
#include "core/expert/part_options.h"
#include "core/expert/policies/eviction_policy.h"
#include "core/store/store.h"

namespace moed {

struct ReplayTimes {
  double read_seconds = 0;   // of one expert
  double layer_seconds = 0;  // computing of one layer
  double token_seconds = 0;  // from the last layer of a token to the first one of the next
};

// Of the last trace alone.
struct ReplayResult {
  uint64_t tokens = 0;
  uint64_t steps = 0;
  uint64_t experts = 0;  // that steps wanted in a layer, each once
  uint64_t lookups = 0;
  uint64_t ready = 0;  // resident when their layer was routed
  uint64_t reads = 0;  // whole experts, guesses included
  uint64_t guesses = 0;
  double seconds = 0;  // simulated

  double ready_ratio() const { return static_cast<double>(ready) / static_cast<double>(lookups); }
  double reads_per_token() const { return static_cast<double>(reads) / static_cast<double>(tokens); }
};

struct ReplaySetup {
  const StoreReader* store = nullptr;           // MakeEmptyStore of the traces' shape
  std::span<const RoutingTrace* const> traces;  // in this order through one cache; the same shape
  uint64_t slots = 0;                           // experts that the cache holds
  size_t at_once = 1;                           // sequences of a trace that share steps; the next ones begin when all have ended
  ReplayTimes times;
  std::string policy;  // names of rows
  std::string predictor;
  PartOptions options = {};
  size_t table_bytes = kDefaultTableBytes;                      // ExpertModelShape's
  const LearnedFile* learned = nullptr;                         // where what was learned is kept in the end; null: nowhere
  std::function<void(size_t tokens)> progress = [](size_t) {};  // tokens done so far
};

// INVALID_ARGUMENT: an unknown name, an option, a predictor that asks the model's gates. `own_policy` (null: the one of that
// name) is used instead of the row.
absl::StatusOr<ReplayResult> Replay(const ReplaySetup& setup, std::unique_ptr<EvictionPolicy> own_policy = nullptr);

}  // namespace moed
