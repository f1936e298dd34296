// Which record is in which slot: residency by key, states (record_state.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/expert/cache/residency_table.h"
#include "core/expert/cache/slot.h"

namespace moed {

// Owns the slots, not their bytes. Slots are reused and stay where they are. A key has one slot that is loading or resident at
// most, which Find gives; a failed one is found by its pins alone. Not synchronised.
class Slots {
 public:
  // Both outlive this.
  Slots(ResidencyTable& residency, SlotOwner& owner);
  static uint64_t TableBytes(size_t keys);

  // Loading or resident; null: absent.
  Slot* Find(const CachedKey& key) const { return by_key_[index_.Of(key)]; }
  std::span<const std::unique_ptr<Slot>> all() const { return slots_; }  // free ones too
  size_t loading() const { return loading_; }
  // Of the reference precision, without bypasses: how many are resident and how many of those on the device. `changes` is another
  // number once anything resident is elsewhere.
  size_t resident_references() const { return resident_references_; }
  size_t references_on_device() const { return references_on_device_; }
  uint64_t changes() const { return changes_; }

  // absent -> loading. Without pins.
  Slot& Begin(const CachedKey& key, std::span<std::byte> bytes, LoadReason reason, bool bypass, int reads, int64_t now_nanos);
  // loading -> resident.
  void Arrive(Slot& slot);
  // Of a resident one: in a device's own memory or, as before it is told, in the host's.
  void PlaceOnDevice(Slot& slot, bool on_device);
  // Of a resident one: where its bytes are now, in the same memory.
  void Move(Slot& slot, std::span<std::byte> bytes) {
    slot.bytes = bytes;
    ++changes_;
  }
  // loading -> failed.
  void Fail(Slot& slot, absl::Status status);
  // resident or failed -> absent. No pins, no reads left; its bytes were given back.
  void Free(Slot& slot);

  uint64_t uses(const CachedKey& key) const { return residency_.lookups(key); }

  size_t memory_bytes() const;

 private:
  static bool CountsAsReference(const Slot& slot) { return slot.key.precision == kReferencePrecision && !slot.bypass; }

  const ExpertIndex& index_;
  ResidencyTable& residency_;
  SlotOwner& owner_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Slot*> free_;
  std::vector<Slot*> by_key_;
  size_t loading_ = 0;
  size_t resident_references_ = 0;
  size_t references_on_device_ = 0;
  uint64_t changes_ = 0;
};

}  // namespace moed
