#include "core/expert/cache/slots.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace moed {

Slots::Slots(ResidencyTable& residency, SlotOwner& owner)
    : index_(residency.index()), residency_(residency), owner_(owner), by_key_(index_.size()), uses_(index_.size()) {
  slots_.reserve(index_.size());
  free_.reserve(index_.size());
}

// A key whose record failed may have several slots while pins hold the failed ones, which is far from all keys at once.
uint64_t Slots::TableBytes(size_t keys) {
  return keys * (sizeof(Slot) + sizeof(std::unique_ptr<Slot>) + 2 * sizeof(Slot*) + sizeof(uint64_t));
}

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
  }
  slot.bytes = {};
  slot.tickets = {};
  slot.status = absl::OkStatus();
  slot.wanted_at = 0;
  slot.due_at = 0;
  slot.kept = false;
  slot.cancelling = false;
  slot.arrived = 0;
  slot.state = RecordState::kAbsent;
  free_.push_back(&slot);
}

std::vector<ExpertHeat> Slots::Hottest(int top) const {
  std::vector<size_t> order;
  for (size_t i = 0; i < uses_.size(); ++i) {
    if (uses_[i] > 0) order.push_back(i);
  }
  const size_t count = std::min(order.size(), static_cast<size_t>(std::max(top, 0)));
  const auto hotter = [this](size_t a, size_t b) { return uses_[a] != uses_[b] ? uses_[a] > uses_[b] : a < b; };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(), hotter);
  std::vector<ExpertHeat> hottest;
  for (const size_t i : std::span(order).first(count)) {
    const CachedKey key = index_.KeyAt(i);
    hottest.push_back({key, uses_[i], residency_.Resident(key)});
  }
  return hottest;
}

std::vector<uint32_t> Slots::Residents(int position) const {
  std::vector<uint32_t> residents(static_cast<size_t>(index_.precisions()));
  CachedKey key{.layer = index_.Layer(position)};
  for (key.expert = 0; key.expert < index_.experts_per_layer(); ++key.expert) {
    for (size_t precision = 0; precision < residents.size(); ++precision) {
      key.precision = static_cast<Precision>(precision);
      residents[precision] += residency_.Resident(key) ? 1 : 0;
    }
  }
  return residents;
}

size_t Slots::memory_bytes() const {
  return slots_.capacity() * sizeof(slots_.front()) + slots_.size() * sizeof(Slot) + free_.capacity() * sizeof(Slot*) +
         by_key_.capacity() * sizeof(Slot*) + uses_.capacity() * sizeof(uint64_t);
}

}  // namespace moed
