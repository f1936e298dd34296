#include "core/expert/cache/slot_pool.h"

#include <algorithm>
#include <iterator>

#include "core/base/check.h"
#include "core/base/status.h"

namespace moed {

SlotPool::SlotPool(Allocator& allocator, uint64_t capacity_bytes) : allocator_(allocator), capacity_bytes_(capacity_bytes) {
  const uint64_t pages = capacity_bytes / kPageBytes;
  if (pages > 0) holes_[0] = pages * kPageBytes;
}

absl::StatusOr<std::span<std::byte>> SlotPool::Take(uint64_t bytes, uint64_t keep_free_bytes) {
  if (in_use_bytes_ + bytes + keep_free_bytes > available_bytes()) return std::span<std::byte>();
  const auto fits = [&](const auto& entry) { return entry.second >= bytes && entry.first + bytes <= lent_begin(); };
  const auto hole = std::find_if(holes_.begin(), holes_.end(), fits);
  if (hole == holes_.end()) return std::span<std::byte>();
  MOED_RETURN_IF_ERROR(Allocate());
  const auto [offset, size] = *hole;
  holes_.erase(hole);
  if (size > bytes) holes_[offset + bytes] = size - bytes;
  in_use_bytes_ += bytes;
  touched_bytes_ = std::max(touched_bytes_, offset + bytes);
  return region_.span().subspan(offset, bytes);
}

absl::Status SlotPool::Allocate() {
  if (region_.size() > 0) return absl::OkStatus();
  MOED_ASSIGN_OR_RETURN(region_, allocator_.Allocate(capacity_bytes_ / kPageBytes * kPageBytes));
  return absl::OkStatus();
}

void SlotPool::Lend(uint64_t bytes) {
  MOED_CHECK(bytes % kPageBytes == 0 && bytes <= capacity_bytes_);
  lent_bytes_ = bytes;
}

absl::StatusOr<std::span<std::byte>> SlotPool::Lent() {
  MOED_RETURN_IF_ERROR(Allocate());
  if (lent_bytes_ > 0) touched_bytes_ = region_.size();
  return region_.span().subspan(lent_begin());
}

bool SlotPool::ReachesLent(std::span<const std::byte> extent) const {
  return static_cast<uint64_t>(extent.data() + extent.size() - region_.data()) > lent_begin();
}

void SlotPool::Return(std::span<std::byte> extent) {
  const uint64_t offset = extent.data() - region_.data();
  MOED_CHECK(offset + extent.size() <= region_.size());
  in_use_bytes_ -= extent.size();
  auto hole = holes_.emplace(offset, extent.size()).first;
  if (const auto next = std::next(hole); next != holes_.end() && hole->first + hole->second == next->first) {
    hole->second += next->second;
    holes_.erase(next);
  }
  if (hole == holes_.begin()) return;
  if (const auto before = std::prev(hole); before->first + before->second == hole->first) {
    before->second += hole->second;
    holes_.erase(hole);
  }
}

}  // namespace moed
