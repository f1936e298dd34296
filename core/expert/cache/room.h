// Bytes for records that come: who gets some, and who leaves for them.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/expert/cache/anchors.h"
#include "core/expert/cache/filler.h"
#include "core/expert/cache/layer_turn.h"
#include "core/expert/cache/slot_pool.h"
#include "core/expert/cache/slots.h"
#include "core/expert/policies/eviction_policy.h"

namespace moed {

// Bytes in slots never exceed the capacity. The policy says who is admitted, the capacity who fits: the policy's first refusal
// takes a reserve from the admitted and keeps it for records that are used once. Evicts nothing itself. Not synchronised.
class Room {
 public:
  // All outlive this.
  struct Around {
    EvictionPolicy& policy;
    const Slots& slots;
    const Filler& filler;
    const Anchors& anchors;
  };
  // `most_bytes`: that the capacity may become.
  Room(Allocator& allocator, uint64_t capacity_bytes, uint64_t most_bytes, uint64_t largest_record_bytes, const Around& around);

  enum class Answer { kHere, kEvictFirst, kNotNow, kRefused };
  struct Place {
    Answer answer = Answer::kNotNow;
    std::span<std::byte> bytes;  // kHere
    Slot* leaves = nullptr;      // kEvictFirst; then ask again
  };
  // For a demand or a guess. kNotNow: not before a pin is dropped or a read ends. The allocator's error.
  absl::StatusOr<Place> ForAdmitted(const Incoming& incoming, const LayerTurn& turn);
  // For a demand that was refused: of the reserve. Never kRefused.
  absl::StatusOr<Place> ForBypass(uint64_t bytes, const LayerTurn& turn);
  // For one that is anchored. Never kRefused.
  absl::StatusOr<Place> ForAnchored(uint64_t bytes, const LayerTurn& turn);
  // What is free; empty where there is not so much.
  absl::StatusOr<std::span<std::byte>> Free(uint64_t bytes) { return pool_.Take(bytes, ReserveLeft()); }
  void CountBypass(const Slot& slot) { bypass_bytes_ += slot.bytes.size(); }
  // Whether a guess may take its place.
  bool LeavesForGuess(const CachedKey& key, const LayerTurn& turn) const;
  // Of a slot whose stay ends.
  void Return(const Slot& slot);

  // SlotPool::Lend; one record at least stays.
  void Lend(uint64_t bytes);
  // SlotPool::Resize; at least one record.
  void Resize(uint64_t capacity_bytes);
  // Who leaves where nobody comes: what was filled in and never used, then what was used least. Null: nobody may.
  Slot* Coldest(const LayerTurn& turn) const;
  SlotPool& pool() { return pool_; }
  const SlotPool& pool() const { return pool_; }

 private:
  uint64_t ReserveLeft() const { return reserve_bytes_ - bypass_bytes_; }
  bool Evictable(const Slot& slot, LoadReason reason, bool spare_kept, const LayerTurn& turn) const;
  uint64_t ReserveOfCapacity() const;

  EvictionPolicy& policy_;
  const Slots& slots_;
  const Filler& filler_;
  const Anchors& anchors_;
  const uint64_t largest_record_bytes_;
  SlotPool pool_;
  uint64_t reserve_bytes_ = 0;  // kept from admitted records once the policy has refused one
  uint64_t bypass_bytes_ = 0;   // of the reserve, in use
};

}  // namespace moed
