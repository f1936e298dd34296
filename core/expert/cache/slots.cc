#include "core/expert/cache/slots.h"

#include <utility>

#include "core/base/check.h"

namespace moed {

Slots::Slots(ResidencyTable& residency, SlotOwner& owner)
    : index_(residency.index()), residency_(residency), owner_(owner), by_key_(index_.size()) {
  slots_.reserve(index_.size());
  free_.reserve(index_.size());
}

// A key whose record failed may have several slots while pins hold the failed ones, which is far from all keys at once.
uint64_t Slots::TableBytes(size_t keys) { return keys * (sizeof(Slot) + sizeof(std::unique_ptr<Slot>) + 2 * sizeof(Slot*)); }

Slot& Slots::Begin(const CachedKey& key, std::span<std::byte> bytes, LoadReason reason, bool bypass, int reads,
                   int64_t now_nanos) {
  if (free_.empty()) free_.push_back(slots_.emplace_back(std::make_unique<Slot>(owner_)).get());
  Slot& slot = *free_.back();
  free_.pop_back();
  MOED_CHECK(slot.state == RecordState::kAbsent && Find(key) == nullptr);
  slot.key = key;
  slot.bytes = bytes;
  slot.reason = reason;
  slot.bypass = bypass;
  slot.reads_left = reads;
  slot.queued_nanos = now_nanos;
  slot.state = RecordState::kLoading;
  by_key_[index_.Of(key)] = &slot;
  residency_.Set(key, RecordState::kLoading);
  ++loading_;
  return slot;
}

void Slots::Arrive(Slot& slot) {
  slot.state = RecordState::kResident;
  residency_.Set(slot.key, RecordState::kResident);
  --loading_;
  ++changes_;
  resident_references_ += CountsAsReference(slot);
}

void Slots::PlaceOnDevice(Slot& slot, bool on_device) {
  if (CountsAsReference(slot)) {
    references_on_device_ += on_device;
    references_on_device_ -= slot.on_device;
  }
  ++changes_;
  slot.on_device = on_device;
  residency_.PlaceOnDevice(slot.key, on_device);
}

void Slots::Fail(Slot& slot, absl::Status status) {
  slot.status = std::move(status);
  slot.state = RecordState::kFailed;
  by_key_[index_.Of(slot.key)] = nullptr;
  residency_.Set(slot.key, RecordState::kAbsent);
  --loading_;
}

void Slots::Free(Slot& slot) {
  MOED_CHECK(slot.pins == 0 && slot.reads_left == 0);
  if (slot.state == RecordState::kResident) {
    by_key_[index_.Of(slot.key)] = nullptr;
    residency_.Set(slot.key, RecordState::kAbsent);
    resident_references_ -= CountsAsReference(slot);
    references_on_device_ -= CountsAsReference(slot) && slot.on_device;
    ++changes_;
  }
  slot.bytes = {};
  slot.on_device = false;
  slot.rises_later = false;
  slot.tickets = {};
  slot.status = absl::OkStatus();
  slot.wanted_at = 0;
  slot.times_used = 0;
  slot.due_at = 0;
  slot.kept = false;
  slot.cancelling = false;
  slot.arrived = 0;
  slot.state = RecordState::kAbsent;
  free_.push_back(&slot);
}

size_t Slots::memory_bytes() const {
  return slots_.capacity() * sizeof(slots_.front()) + slots_.size() * sizeof(Slot) + free_.capacity() * sizeof(Slot*) +
         by_key_.capacity() * sizeof(Slot*);
}

}  // namespace moed
