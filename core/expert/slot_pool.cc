#include "core/expert/slot_pool.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"

namespace moed {

absl::StatusOr<Buffer> SlotPool::Take(uint64_t bytes, uint64_t keep_free_bytes) {
  if (in_use_bytes_ + bytes + keep_free_bytes > capacity_bytes_) return Buffer();
  const auto same = std::find_if(free_.begin(), free_.end(), [bytes](const Buffer& buffer) { return buffer.size() == bytes; });
  if (same != free_.end()) {
    std::swap(*same, free_.back());
    Buffer taken = std::move(free_.back());
    free_.pop_back();
    in_use_bytes_ += bytes;
    return taken;
  }
  while (mapped_bytes_ + bytes > capacity_bytes_) {
    mapped_bytes_ -= free_.back().size();
    free_.pop_back();
  }
  MOED_ASSIGN_OR_RETURN(Buffer taken, allocator_.Allocate(bytes));
  MOED_CHECK(taken.size() == bytes);
  mapped_bytes_ += bytes;
  in_use_bytes_ += bytes;
  return taken;
}

void SlotPool::Return(Buffer buffer) {
  in_use_bytes_ -= buffer.size();
  free_.push_back(std::move(buffer));
}

}  // namespace moed
