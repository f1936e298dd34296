// The bytes of the cache: page-aligned buffers whose sum never exceeds the capacity, those kept for reuse included.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/buffer.h"

namespace moed {

// Not synchronised; the cache's lock guards it. Everything taken comes back before the end.
class SlotPool {
 public:
  SlotPool(Allocator& allocator, uint64_t capacity_bytes) : allocator_(allocator), capacity_bytes_(capacity_bytes) {}

  // `bytes` in whole pages. An empty buffer when what is in use leaves no room for `bytes` beside `keep_free_bytes`; the
  // allocator's error when it refuses. A free buffer of the same size is reused, others are unmapped as far as their room is
  // needed.
  absl::StatusOr<Buffer> Take(uint64_t bytes, uint64_t keep_free_bytes);
  void Return(Buffer buffer);

  uint64_t mapped_bytes() const { return mapped_bytes_; }
  uint64_t capacity_bytes() const { return capacity_bytes_; }

 private:
  Allocator& allocator_;
  const uint64_t capacity_bytes_;
  uint64_t in_use_bytes_ = 0;
  uint64_t mapped_bytes_ = 0;  // in use or free
  std::vector<Buffer> free_;
};

}  // namespace moed
