#include "core/expert/cache/device_tier.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"

namespace moed {
namespace {

// One record at a time where more would take much of a small tier.
uint64_t SpareBytes(uint64_t capacity_bytes, uint64_t record_bytes) {
  const uint64_t records = std::clamp<uint64_t>(capacity_bytes / record_bytes / 8, 1, kMovesAtOnce);
  return std::min(records * record_bytes, capacity_bytes);
}

}  // namespace

DeviceTier::DeviceTier(const DeviceSlots& memory, uint64_t largest_record_bytes, SlotPool& host, EvictionPolicy& policy,
                       Slots& slots, const Filler& filler)
    : to_device_(*memory.copier),
      spare_bytes_(SpareBytes(memory.capacity_bytes, largest_record_bytes)),
      host_(host),
      policy_(policy),
      slots_(slots),
      filler_(filler),
      pool_(*memory.allocator, memory.capacity_bytes, memory.capacity_bytes) {
  stats_.capacity_bytes = memory.capacity_bytes;
}

DeviceTier::~DeviceTier() { SettleAll(); }

absl::Status DeviceTier::Allocate() {
  MOED_RETURN_IF_ERROR(pool_.Allocate());
  MOED_ASSIGN_OR_RETURN(to_host_, to_device_.MakeAnother());
  for (Move& move : moves_) {
    MOED_ASSIGN_OR_RETURN(move.has_risen, to_device_.MakeEvent());
    MOED_ASSIGN_OR_RETURN(move.has_sunk, to_host_->MakeEvent());
  }
  return absl::OkStatus();
}

void DeviceTier::Raise(Slot& slot, int pins, LayerId current_layer) {
  if (slot.on_device || slot.pins != pins || slot.bypass) return;
  MOED_CHECK(slot.state == RecordState::kResident);
  Move* const move = FreeMove();
  if (move == nullptr) return;
  const auto take = [&](uint64_t keep_free) { return pool_.Take(slot.bytes.size(), keep_free).value_or(std::span<std::byte>()); };
  if (const std::span<std::byte> free = take(spare_bytes_); !free.empty()) return Rise(*move, slot, free);
  Slot* const other = WhoSinksFor(slot, current_layer);
  if (other == nullptr) return;
  if (const std::span<std::byte> spare = take(0); !spare.empty()) Exchange(*move, slot, *other, spare);
}

void DeviceTier::RaiseIntoFreeRoom(Slot& slot) {
  if (slot.state == RecordState::kResident && pool_.free_bytes() >= slot.bytes.size() + spare_bytes_) {
    Raise(slot, /*pins=*/0, slot.key.layer);
  }
}

DeviceTier::Move* DeviceTier::FreeMove() {
  Settle();
  const auto free = std::ranges::find(moves_, nullptr, &Move::risen);
  return free == moves_.end() ? nullptr : &*free;
}

// What was filled in and never used first.
Slot* DeviceTier::WhoSinksFor(const Slot& slot, LayerId current_layer) const {
  const auto may_sink = [&](const Slot& other) {
    return other.on_device && other.state == RecordState::kResident && other.pins == 0 && other.bytes.size() == slot.bytes.size();
  };
  if (Slot* unused = filler_.LastUnused(may_sink)) return unused;
  const auto considered = [&](CachedKey key) {
    const Slot* other = slots_.Find(key);
    return other != nullptr && (other == &slot || may_sink(*other));
  };
  const std::optional<CachedKey> least =
      policy_.Victim({slot.key, slot.bytes.size(), LoadReason::kDemand, current_layer}, considered);
  if (!least || *least == slot.key) return nullptr;
  MOED_CHECK(considered(*least));
  return slots_.Find(*least);
}

void DeviceTier::Rise(Move& move, Slot& slot, std::span<std::byte> to) {
  move.risen = &slot;
  move.left = slot.bytes;
  to_device_.Copy(to.data(), slot.bytes.data(), to.size());
  to_device_.Record(*move.has_risen);
  Place(slot, to, /*on_device=*/true, *move.has_risen);
  stats_.risen_bytes += to.size();
  ++moving_;
}

// `other` may only be copied to where `slot` lay once that has been read. Nobody who waits for `slot`, or for the next one that
// rises, waits for that copy.
void DeviceTier::Exchange(Move& move, Slot& slot, Slot& other, std::span<std::byte> to) {
  const std::span<std::byte> place = slot.bytes;
  Rise(move, slot, to);
  move.sunk = &other;
  move.left = other.bytes;
  to_host_->Await(*move.has_risen);
  to_host_->Copy(place.data(), other.bytes.data(), place.size());
  to_host_->Record(*move.has_sunk);
  Place(other, place, /*on_device=*/false, *move.has_sunk);
  stats_.sunk_bytes += place.size();
}

void DeviceTier::Place(Slot& slot, std::span<std::byte> bytes, bool on_device, const ReadyEvent& copied) {
  slot.bytes = bytes;
  slots_.PlaceOnDevice(slot, on_device);
  slot.ready = &copied;
  ++slot.pins;
}

void DeviceTier::Settle() {
  if (moving_ == 0) return;
  for (Move& move : moves_) {
    if (move.risen != nullptr && move.done().Ready()) End(move);
  }
}

void DeviceTier::SettleAll() {
  for (Move& move : moves_) {
    if (move.risen == nullptr) continue;
    to_device_.Wait(move.done()).IgnoreError();
    End(move);
  }
}

DeviceTierStats DeviceTier::stats() const {
  DeviceTierStats now = stats_;
  now.bytes = pool_.in_use_bytes();
  return now;
}

void DeviceTier::End(Move& move) {
  for (Slot* slot : {move.risen, move.sunk}) {
    if (slot == nullptr) continue;
    slot->ready = nullptr;
    --slot->pins;
  }
  (move.sunk == nullptr ? host_ : pool_).Return(move.left);
  move.risen = move.sunk = nullptr;
  --moving_;
}

}  // namespace moed
