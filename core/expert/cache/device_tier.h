// The part of the cache in a device's own memory: which records lie there, and their way between it and the host's memory.
//
// A record lies in one of the two. What is read arrives in the host's memory. What is wanted and lies there rises: into free
// room, or in exchange for the record of its size here that the policy would let leave first, itself among them. So nothing
// leaves the cache for a rise, and the policy ranks all records as one cache. What leaves for records that are read leaves from
// the host's.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "core/base/buffer.h"
#include "core/base/copier.h"
#include "core/expert/cache/filler.h"
#include "core/expert/cache/slot_pool.h"
#include "core/expert/cache/slots.h"
#include "core/expert/policies/eviction_policy.h"
#include "core/expert/stats.h"

namespace moed {

inline constexpr int kMovesAtOnce = 4;  // rises under way

// Memory of a device's own for records, and who copies into it.
struct DeviceSlots {
  Allocator* allocator = nullptr;
  Copier* copier = nullptr;
  uint64_t capacity_bytes = 0;
  // What it takes to bring experts to the device, where the host's processor may compute with some in their place; 0: it may not.
  double bring_seconds_per_byte = 0;
};

// Copies run while the device computes, those to it beside those from it; `Slot::ready` is where the device has to wait for one.
// Until a move has ended its records are pinned for it. Not synchronised; the cache's lock guards it.
class DeviceTier {
 public:
  // All outlive this. `host`: where records lie otherwise.
  DeviceTier(const DeviceSlots& memory, uint64_t largest_record_bytes, SlotPool& host, EvictionPolicy& policy, Slots& slots,
             const Filler& filler);
  ~DeviceTier();
  // Before anything else: takes all memory. The allocator's error, the copier's.
  absl::Status Allocate();

  // A resident record in the host's memory that nobody but `pins` holders has pinned, who have not been told yet where it lies.
  // It rises where that is worth it and possible now. Where it then lies is its slot's.
  void Raise(Slot& slot, int pins, LayerId current_layer);
  // The same for one that nobody wants now: into free room alone.
  void RaiseIntoFreeRoom(Slot& slot);

  // Moves that have ended unpin their records and give back what they held.
  void Settle();
  bool moving() const { return moving_ > 0; }
  // Waits for all moves. What goes wrong with them is told by whoever computes with what was moved.
  void SettleAll();

  // A record is handed out.
  void CountUse(TierUse use) { ++stats_.uses[static_cast<size_t>(use)]; }
  DeviceTierStats stats() const;

 private:
  // `risen` came here; in exchange `sunk` took its place, or else `left` is free in the host's memory.
  struct Move {
    std::unique_ptr<ReadyEvent> has_risen;
    std::unique_ptr<ReadyEvent> has_sunk;
    Slot* risen = nullptr;  // null: no move
    Slot* sunk = nullptr;
    std::span<std::byte> left;

    // The last copy's.
    const ReadyEvent& done() const { return sunk == nullptr ? *has_risen : *has_sunk; }
  };

  Move* FreeMove();
  void Rise(Move& move, Slot& slot, std::span<std::byte> to);
  void Exchange(Move& move, Slot& slot, Slot& other, std::span<std::byte> to);
  void Place(Slot& slot, std::span<std::byte> bytes, bool on_device, const ReadyEvent& copied);
  Slot* WhoSinksFor(const Slot& slot, LayerId current_layer) const;
  void End(Move& move);

  Copier& to_device_;
  std::unique_ptr<Copier> to_host_;
  const uint64_t spare_bytes_;  // kept free for exchanges
  SlotPool& host_;
  EvictionPolicy& policy_;
  Slots& slots_;
  const Filler& filler_;
  SlotPool pool_;
  std::array<Move, kMovesAtOnce> moves_;
  int moving_ = 0;
  DeviceTierStats stats_;
};

}  // namespace moed
