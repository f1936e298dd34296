// The provider that owns the one expert cache of the process (record_state.h says what its records go through), with the parts
// that decide for it: policy, predictor, mask, rule.
#pragma once

#include <memory>
#include <span>
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
#include "core/expert/policies/eviction_policy.h"
#include "core/expert/predictors/predictor.h"
#include "core/expert/provider.h"
#include "core/expert/routing_trace.h"
#include "core/expert/stats.h"
#include "core/io/read_backend.h"
#include "core/io/read_queue.h"
#include "core/store/store.h"

namespace moed {

struct ProviderOptions {
  uint64_t capacity_bytes = 0;  // slots in the host's memory, everything read included; at least one record
  uint64_t most_bytes = 0;      // that the capacity may become; less than it: as much
  uint64_t least_bytes = 0;     // that it must have, what is lent at most included, beside what is pinned; at least one record
  ReadQueueOptions queue;
  int max_prefetch_loads = 4;  // guesses added per layer step
  float min_prefetch_probability = 0.1f;
  uint64_t split_read_bytes =
      1 << 20;  // records from this size on are read part by part, so that compute starts before their end
  ChecksumRule checksums = ChecksumRule::kFirstRead;
  bool take_what_is_free = true;   // an expert that a rule lowers is used at the reference precision where it is resident there
  bool most_wanted_first = false;  // a prompt's experts are read in order of the tokens that chose them
  // What nobody chose of a layer is read after what was chosen. The layer ends when all is there, of split records the first
  // part.
  bool whole_layers = false;
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
  size_t known = 0;                     // so many at its beginning were in memory before
  int encoder_positions = 0;            // ExpertIndex's
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
  // Between steps, from their thread, while no handle lives: the cache holds so many bytes from now on, and what it held beyond
  // them has left the process. Records move or leave as need be; what is lent is not any more. FAILED_PRECONDITION, and nothing
  // has happened, with what is allowed: below the least or what pinned experts leave, above the most, a policy whose plan is
  // fixed, memory that a device reads where it is. The allocator's error.
  virtual absl::Status Resize(uint64_t capacity_bytes) = 0;

  // Of keys of this store, each once. Any thread; short work, and what is to be read is read while no demand waits.
  // Pinned records are read and never leave for others, in this process. All or none: FAILED_PRECONDITION says how many may be.
  // What cannot be read is tried again, at calls of Lend (RetryTime).
  virtual absl::Status Pin(std::span<const CachedKey> keys) = 0;
  virtual void Unpin(std::span<const CachedKey> keys) = 0;
  virtual void UnpinAll() = 0;
  virtual std::vector<CachedKey> Pinned() const = 0;
  // Reads them in this order, into free room and in place of what would leave if they were wanted. Returns how many of them,
  // from the first: as many as there is room for.
  virtual size_t Prefetch(std::span<const CachedKey> keys) = 0;

  // Any thread, without waiting for those that compute or read: as ResidencyTable::ChangedSince.
  virtual ExpertMap ChangedExperts(uint64_t since) const = 0;
  // Shows what policy and predictor have learned. While nobody calls what a step calls.
  virtual void VisitLearned(LearnedState& state) = 0;
};

}  // namespace moed
