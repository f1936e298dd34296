// What Control may do with the expert cache while it serves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/expert/memory_plan.h"

namespace moed {

// Thread-safe; nothing blocks. Where `done` is taken and OK returned, it is called once, later, on a thread that it must not hold
// up; after an error never.
class CacheOperations {
 public:
  virtual ~CacheOperations() = default;

  virtual MemoryPlan plan() const = 0;  // at the budget of now
  // Another budget, between two steps. Of what is refused nothing happens: FAILED_PRECONDITION with the table of needs where it
  // is too small, and with what is allowed where it is more than was reserved, or the cache keeps its size.
  virtual absl::Status Resize(uint64_t budget_bytes, std::function<void(const absl::Status&)> done) = 0;

  // At the reference precision, of experts of this model. FAILED_PRECONDITION where the preset decides itself what is in memory;
  // for Pin also beyond what may be pinned.
  virtual absl::Status Pin(std::span<const ExpertKey> experts) = 0;
  virtual void Unpin(std::span<const ExpertKey> experts) = 0;
  virtual void UnpinAll() = 0;
  virtual std::vector<ExpertKey> Pinned() const = 0;
  // How many of them are read, from the first: as many as there is room for.
  virtual absl::StatusOr<size_t> Prefetch(std::span<const ExpertKey> experts) = 0;

  // FAILED_PRECONDITION without --residency; RESOURCE_EXHAUSTED while others wait. `done` gets the number of experts that were
  // written, or that are read.
  using Counted = std::function<void(const absl::StatusOr<size_t>&)>;
  virtual absl::Status SaveResidency(Counted done) = 0;
  virtual absl::Status RestoreResidency(Counted done) = 0;
};

}  // namespace moed
