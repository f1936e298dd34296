// The provider that owns the one expert cache of the process (record_state.h says what its records go through), with the parts
// that decide for it: policy, predictor, mask, rule.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/base/clock.h"
#include "core/base/trace.h"
#include "core/expert/cache/device_tier.h"
#include "core/expert/cache/loader.h"
#include "core/expert/fidelity/mask.h"
#include "core/expert/fidelity/rule.h"
#include "core/expert/learning/learned_state.h"
#include "core/expert/policies/eviction_policy.h"
#include "core/expert/predictors/predictor.h"
#include "core/expert/provider.h"
#include "core/expert/routing_trace.h"
#include "core/expert/stats.h"
#include "core/io/read_backend.h"
#include "core/store/store.h"

namespace moed {

struct ProviderOptions {
  uint64_t capacity_bytes = 0;  // slots in the host's memory, everything read included; at least one record
  int max_reads_in_flight = 0;  // 0: the backend's
  int max_prefetch_loads = 4;   // guesses added per layer step
  float min_prefetch_probability = 0.1f;
  uint64_t split_read_bytes =
      1 << 20;  // records from this size on are read part by part, so that compute starts before their end
  ChecksumRule checksums = ChecksumRule::kFirstRead;
  bool take_what_is_free = true;   // an expert that a rule lowers is used at the reference precision where it is resident there
  bool most_wanted_first = false;  // a prompt's experts are read in order of the tokens that chose them
};

struct ProviderParts {  // all outlive the provider unless owned
  const StoreReader* store = nullptr;
  ReadBackend* reads = nullptr;
  std::unique_ptr<EvictionPolicy> policy;
  std::unique_ptr<ExpertPredictor> predictor;
  std::unique_ptr<RouterMask> mask;  // null: none
  std::unique_ptr<FidelityRule> fidelity;
  const Clock* clock = nullptr;
  Allocator* allocator = nullptr;
  DeviceSlots device;                   // further slots; without an allocator: none
  Trace* trace = nullptr;               // may be null
  RoutingRecorder* recorder = nullptr;  // may be null
  std::vector<CachedKey> fill;          // read while the disk is idle and the cache has free room, in this order
};

// Lends of the cache: what lies there leaves, and until the loan ends the cache is smaller by it. At least one record has to
// stay.
class CachingProvider : public ExpertProvider, public ActivationLender {
 public:
  // INVALID_ARGUMENT when a capacity holds no record. With a device the memory of records is taken at once, and its errors are
  // those of this call. No thread of its own.
  static absl::StatusOr<std::unique_ptr<CachingProvider>> Create(ProviderParts parts, const ProviderOptions& options);
  // An upper bound of table_bytes() for a store of this shape.
  static uint64_t CacheTableBytes(const StoreDescription& store);
  // Of the cache's tables beside its records; those of policy, predictor, mask and rule come on top. Not while a layer runs.
  virtual uint64_t table_bytes() const = 0;

  virtual ExpertStats Stats() const = 0;                              // any thread
  virtual std::vector<ExpertHeat> HottestExperts(int top) const = 0;  // any thread; by uses, highest first
  virtual std::vector<ExpertHeat> ResidentRecords() const = 0;        // any thread; by uses, highest first
  // Any thread, without waiting for those that compute or read: as ResidencyTable::ChangedSince.
  virtual ExpertMap ChangedExperts(uint64_t since) const = 0;
  // What policy and predictor have learned. Once nobody calls the others any more.
  virtual absl::Status SaveLearned(const LearnedFile& file) = 0;
};

}  // namespace moed
