// The bytes of the cache: one region of memory as large as the capacity may become, handed out in extents. One region, because
// only a large one gets large pages, which reading weights at the memory's speed needs, and because a device wants to know it
// whole. What lies beyond the capacity is never touched, or was given back to the kernel.
#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "absl/status/statusor.h"
#include "core/base/buffer.h"

namespace moed {

// Not synchronised; the cache's lock guards it. Everything taken comes back before the end.
class SlotPool {
 public:
  // `most_bytes`: that the capacity may become; at least `capacity_bytes`.
  SlotPool(Allocator& allocator, uint64_t capacity_bytes, uint64_t most_bytes);
  // Asks for the region now and not at the first Take. The allocator's error.
  absl::Status Allocate();

  // `bytes` in whole pages, at the lowest address where they fit. Empty when what is in use leaves no room for `bytes` beside
  // `keep_free_bytes`, or no hole is large enough (where records of several sizes meet); the allocator's error when it refuses
  // the region, which is asked for at the first call.
  absl::StatusOr<std::span<std::byte>> Take(uint64_t bytes, uint64_t keep_free_bytes);
  void Return(std::span<std::byte> extent);
  // Copies what is in an extent to the lowest place where it fits, and returns the extent. Empty where no hole is large enough:
  // then nothing has happened. Of the host's memory alone.
  std::span<std::byte> Move(std::span<std::byte> extent);

  // At most the most; what was lent is not any more. Nothing is handed out beyond it from now on; what is in use there stays
  // until it is returned.
  void Resize(uint64_t capacity_bytes);
  bool ReachesBeyond(std::span<const std::byte> extent) const { return EndOf(extent) > end(); }
  // Once nothing in use reaches beyond the capacity: pages there leave the process. Of the host's memory alone.
  void GiveBackBeyond();
  // Whether they can: a device's pages, and those that a device reads where they are, stay.
  bool gives_back() const { return region_.kind() == MemoryKind::kHost; }

  // The last `bytes` of the capacity (whole pages, at most the capacity) are lent from now on: nothing is handed out of them.
  // What is in use there stays until it is returned. 0 ends the loan.
  void Lend(uint64_t bytes);
  // What is lent; the borrower's once nothing in use reaches into it. The allocator's error as for Take.
  absl::StatusOr<std::span<std::byte>> Lent();
  bool ReachesLent(std::span<const std::byte> extent) const;
  bool lends() const { return lent_bytes_ > 0; }
  // What may be handed out: the capacity without what is lent.
  uint64_t available_bytes() const { return capacity_bytes_ - lent_bytes_; }

  uint64_t in_use_bytes() const { return in_use_bytes_; }
  uint64_t free_bytes() const { return available_bytes() - in_use_bytes_; }
  uint64_t touched_bytes() const { return touched_bytes_; }  // of the region: what may be resident
  uint64_t capacity_bytes() const { return capacity_bytes_; }
  uint64_t most_bytes() const { return most_bytes_; }

 private:
  using Holes = std::map<uint64_t, uint64_t>;

  // The lowest hole of so many bytes that may be handed out; the end: none.
  Holes::iterator HoleFor(uint64_t bytes);
  std::span<std::byte> TakeOf(Holes::iterator hole, uint64_t bytes);
  uint64_t end() const { return capacity_bytes_ / kPageBytes * kPageBytes; }
  uint64_t lent_begin() const { return end() - lent_bytes_; }
  uint64_t EndOf(std::span<const std::byte> extent) const {
    return static_cast<uint64_t>(extent.data() + extent.size() - region_.data());
  }

  Allocator& allocator_;
  const uint64_t most_bytes_;
  uint64_t capacity_bytes_;
  uint64_t lent_bytes_ = 0;
  Buffer region_;
  uint64_t in_use_bytes_ = 0;
  uint64_t touched_bytes_ = 0;
  Holes holes_;  // offset -> bytes; no two of them touch
};

}  // namespace moed
