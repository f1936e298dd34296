// The memory that a backend's operations read and write: everything that they are given lies in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/base/copier.h"

namespace moed {

struct WorkingBytes {
  uint64_t all = 0;   // 0: there is no memory of its own
  uint64_t free = 0;  // when the device was opened: without what its context, its libraries and other processes take
};

// Thread contract: allocators from any thread, the rest as the backend. It goes with its backend; what was allocated may stay.
class BackendMemory {
 public:
  virtual ~BackendMemory() = default;

  // Whole pages, 4 KiB-aligned (fit for O_DIRECT), that the host and operations both read and write where they are. They hold
  // anything at first.
  virtual Allocator& shared() = 0;
  // What operations read and write fastest: for trunk, keys and values, activations. The host follows no pointer to it, unless it
  // is shared().
  virtual Allocator& working() = 0;
  bool unified() { return &working() == &shared(); }
  // What a device has of working() that is not the host's.
  virtual WorkingBytes working_bytes() const = 0;
  // Between pieces of either that do not overlap. Enqueued as an operation is.
  virtual void Copy(void* to, const void* from, size_t bytes) = 0;
  // For copies that are no operations and run beside them; gone before the backend. FAILED_PRECONDITION: unified.
  virtual absl::StatusOr<std::unique_ptr<Copier>> MakeCopier() = 0;

  // That of the processor's backends: the host's own, where a copy is made at once.
  static BackendMemory& Host();
};

}  // namespace moed
