#include "core/expert/cache/room.h"

#include <algorithm>
#include <optional>

#include "core/base/check.h"
#include "core/base/status.h"

namespace moed {

Room::Room(Allocator& allocator, uint64_t capacity_bytes, uint64_t most_bytes, uint64_t largest_record_bytes,
           const Around& around)
    : policy_(around.policy),
      slots_(around.slots),
      filler_(around.filler),
      anchors_(around.anchors),
      largest_record_bytes_(largest_record_bytes),
      pool_(allocator, capacity_bytes, most_bytes) {
  MOED_CHECK(capacity_bytes >= largest_record_bytes);
}

absl::StatusOr<Room::Place> Room::ForAdmitted(const Incoming& incoming, const LayerTurn& turn) {
  if (pool_.available_bytes() < reserve_bytes_ + anchors_.bytes() + incoming.bytes) return Place{Answer::kRefused};
  MOED_ASSIGN_OR_RETURN(const std::span<std::byte> free, Free(incoming.bytes));
  if (!free.empty()) return Place{Answer::kHere, free};
  const auto any = [&](bool spare_kept) {
    return std::ranges::any_of(slots_.all(),
                               [&](const auto& slot) { return Evictable(*slot, incoming.reason, spare_kept, turn); });
  };
  const bool spare_kept = any(true);
  if (!spare_kept && (incoming.reason == LoadReason::kPrefetch || !any(false))) return Place{Answer::kNotNow};
  const auto may_leave = [&](const Slot& slot) { return Evictable(slot, incoming.reason, spare_kept, turn); };
  if (Slot* fill = filler_.LastUnused(may_leave)) return Place{Answer::kEvictFirst, {}, fill};
  const auto evictable = [&](CachedKey key) {
    const Slot* slot = slots_.Find(key);
    return slot != nullptr && may_leave(*slot);
  };
  const std::optional<CachedKey> victim = policy_.Victim(incoming, evictable);
  if (!victim) return Place{Answer::kRefused};
  MOED_CHECK(evictable(*victim));
  return Place{Answer::kEvictFirst, {}, slots_.Find(*victim)};
}

// Two records of reserve where that leaves as much for the others, so that one is read while the other is used.
absl::StatusOr<Room::Place> Room::ForBypass(uint64_t bytes, const LayerTurn& turn) {
  if (reserve_bytes_ == 0) reserve_bytes_ = ReserveOfCapacity();
  if (bytes > ReserveLeft()) return Place{Answer::kNotNow};
  MOED_ASSIGN_OR_RETURN(const std::span<std::byte> free, pool_.Take(bytes, 0));
  if (!free.empty()) return Place{Answer::kHere, free};
  Slot* coldest = Coldest(turn);
  return coldest == nullptr ? Place{Answer::kNotNow} : Place{Answer::kEvictFirst, {}, coldest};
}

uint64_t Room::ReserveOfCapacity() const {
  return largest_record_bytes_ * (pool_.capacity_bytes() >= 4 * largest_record_bytes_ ? 2 : 1);
}

absl::StatusOr<Room::Place> Room::ForAnchored(uint64_t bytes, const LayerTurn& turn) {
  MOED_ASSIGN_OR_RETURN(const std::span<std::byte> free, Free(bytes));
  if (!free.empty()) return Place{Answer::kHere, free};
  Slot* coldest = Coldest(turn);
  return coldest == nullptr ? Place{Answer::kNotNow} : Place{Answer::kEvictFirst, {}, coldest};
}

void Room::Resize(uint64_t capacity_bytes) {
  MOED_CHECK(capacity_bytes >= largest_record_bytes_);
  pool_.Resize(capacity_bytes);
  if (reserve_bytes_ > 0) reserve_bytes_ = std::max(ReserveOfCapacity(), bypass_bytes_);
}

void Room::Return(const Slot& slot) {
  if (slot.bypass) bypass_bytes_ -= slot.bytes.size();
  pool_.Return(slot.bytes);
}

void Room::Lend(uint64_t bytes) {
  MOED_CHECK(bytes + largest_record_bytes_ <= pool_.capacity_bytes());
  pool_.Lend(bytes);
}

// A demand takes what nobody holds, last what is kept. A guess also spares other guesses whose layer is still to come, and what
// this layer wants: the next token may want it again. A prompt is through with it.
bool Room::Evictable(const Slot& slot, LoadReason reason, bool spare_kept, const LayerTurn& turn) const {
  if (slot.state != RecordState::kResident || slot.on_device || slot.pins > 0 || slot.bypass) return false;
  if (anchors_.Has(slot.key)) return false;
  const bool due = slot.due_at > turn.number();
  if (spare_kept && slot.kept && due) return false;
  if (reason == LoadReason::kDemand) return true;
  return (turn.phase() == Phase::kPrefill || slot.wanted_at != turn.number()) && !(slot.unused_guess && due);
}

bool Room::LeavesForGuess(const CachedKey& key, const LayerTurn& turn) const {
  const Slot* slot = slots_.Find(key);
  return slot != nullptr && Evictable(*slot, LoadReason::kPrefetch, /*spare_kept=*/true, turn);
}

Slot* Room::Coldest(const LayerTurn& turn) const {
  const auto evictable = [&](const Slot& slot) { return Evictable(slot, LoadReason::kDemand, /*spare_kept=*/false, turn); };
  if (Slot* fill = filler_.LastUnused(evictable)) return fill;
  Slot* coldest = nullptr;
  for (const auto& slot : slots_.all()) {
    if (!evictable(*slot)) continue;
    if (coldest == nullptr || slots_.uses(slot->key) < slots_.uses(coldest->key)) coldest = slot.get();
  }
  return coldest;
}

}  // namespace moed
