// SwapMoE, 3.4.1: what one expert takes here in bytes and time; and the norms that importance is weighted with.
#pragma once

#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/store/store.h"

namespace moed {

struct ExpertProfile {
  uint64_t bytes = 0;          // of the cache
  double load_seconds = 0;     // one record from the storage, alone
  double compute_seconds = 0;  // one token, all of the expert's matrices, on `threads`
};
// Means over several experts, evenly spread.
absl::StatusOr<ExpertProfile> ProfileExperts(const StoreReader& store, int threads);

// (MoE layers, experts): the Frobenius norm of gate, up and down together, at the reference precision. Reads every record once
// and checks it, for a store that has no
// norms of its own; `progress(done)` is asked after each one and ends it with CANCELLED by returning false.
absl::StatusOr<std::vector<float>> ExpertNorms(const StoreReader& store, absl::FunctionRef<bool(uint64_t done)> progress);

}  // namespace moed
