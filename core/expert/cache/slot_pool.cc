#include "core/expert/cache/slot_pool.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "core/base/check.h"
#include "core/base/resident_buffers.h"
#include "core/base/status.h"

namespace moed {

SlotPool::SlotPool(Allocator& allocator, uint64_t capacity_bytes, uint64_t most_bytes)
    : allocator_(allocator), most_bytes_(most_bytes), capacity_bytes_(capacity_bytes) {
  MOED_CHECK(capacity_bytes <= most_bytes);
  const uint64_t pages = most_bytes / kPageBytes;
  if (pages > 0) holes_[0] = pages * kPageBytes;
}

absl::StatusOr<std::span<std::byte>> SlotPool::Take(uint64_t bytes, uint64_t keep_free_bytes) {
  if (in_use_bytes_ + bytes + keep_free_bytes > available_bytes()) return std::span<std::byte>();
  const auto hole = HoleFor(bytes);
  if (hole == holes_.end()) return std::span<std::byte>();
  MOED_RETURN_IF_ERROR(Allocate());
  return TakeOf(hole, bytes);
}

SlotPool::Holes::iterator SlotPool::HoleFor(uint64_t bytes) {
  const auto fits = [&](const auto& entry) { return entry.second >= bytes && entry.first + bytes <= lent_begin(); };
  return std::find_if(holes_.begin(), holes_.end(), fits);
}

std::span<std::byte> SlotPool::TakeOf(Holes::iterator hole, uint64_t bytes) {
  const auto [offset, size] = *hole;
  holes_.erase(hole);
  if (size > bytes) holes_[offset + bytes] = size - bytes;
  in_use_bytes_ += bytes;
  touched_bytes_ = std::max(touched_bytes_, offset + bytes);
  return region_.span().subspan(offset, bytes);
}

std::span<std::byte> SlotPool::Move(std::span<std::byte> extent) {
  const auto hole = HoleFor(extent.size());
  if (hole == holes_.end()) return {};
  const std::span<std::byte> to = TakeOf(hole, extent.size());
  std::memcpy(to.data(), extent.data(), to.size());
  Return(extent);
  return to;
}

absl::Status SlotPool::Allocate() {
  if (region_.size() > 0) return absl::OkStatus();
  MOED_ASSIGN_OR_RETURN(region_, allocator_.Allocate(most_bytes_ / kPageBytes * kPageBytes));
  return absl::OkStatus();
}

void SlotPool::Resize(uint64_t capacity_bytes) {
  MOED_CHECK(capacity_bytes <= most_bytes_);
  lent_bytes_ = 0;
  capacity_bytes_ = capacity_bytes;
}

void SlotPool::GiveBackBeyond() {
  if (touched_bytes_ <= end()) return;
  MOED_CHECK(gives_back());
  GiveBackPages(region_.span().subspan(end()));
  touched_bytes_ = end();
}

void SlotPool::Lend(uint64_t bytes) {
  MOED_CHECK(bytes % kPageBytes == 0 && bytes <= capacity_bytes_);
  lent_bytes_ = bytes;
}

absl::StatusOr<std::span<std::byte>> SlotPool::Lent() {
  MOED_RETURN_IF_ERROR(Allocate());
  if (lent_bytes_ > 0) touched_bytes_ = std::max(touched_bytes_, end());
  return region_.span().subspan(lent_begin(), lent_bytes_);
}

bool SlotPool::ReachesLent(std::span<const std::byte> extent) const { return EndOf(extent) > lent_begin(); }

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
