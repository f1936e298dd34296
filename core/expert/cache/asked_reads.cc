#include "core/expert/cache/asked_reads.h"

#include <utility>

namespace moed {

AskedReads::AskedReads(const ExpertIndex& index) : index_(index) {}

void AskedReads::Add(const CachedKey& key) {
  waits_.resize(index_.size());
  const size_t i = index_.Of(key);
  if (waits_[i]) return;
  if (empty()) {
    waiting_.clear();
    next_ = 0;
    waiting_.reserve(index_.size());
  } else if (waiting_.size() == waiting_.capacity()) {
    waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(next_));
    next_ = 0;
  }
  waits_[i] = true;
  waiting_.push_back(static_cast<uint32_t>(i));
}

std::optional<CachedKey> AskedReads::Next(const Slots& slots) {
  while (!empty()) {
    const CachedKey key = index_.KeyAt(waiting_[next_]);
    Slot* const slot = slots.Find(key);
    if (slot == nullptr) return key;
    Begun(*slot);
    if (slot->state == RecordState::kResident) Arrived(*slot);
  }
  return std::nullopt;
}

void AskedReads::Begun(Slot& slot) {
  Pop();
  slot.asked = true;
}

void AskedReads::Refused() {
  Pop();
  ++counts_.refused;
}

void AskedReads::Arrived(Slot& slot) {
  if (std::exchange(slot.asked, false)) ++counts_.done;
}

void AskedReads::Failed(Slot& slot) {
  if (std::exchange(slot.asked, false)) ++counts_.failed;
}

void AskedReads::GivenUp(Slot& slot) {
  if (std::exchange(slot.asked, false)) Add(slot.key);
}

void AskedReads::Pop() {
  waits_[waiting_[next_]] = false;
  ++next_;
}

AskedCounts AskedReads::counts() const {
  AskedCounts counts = counts_;
  counts.waiting = waiting_.size() - next_;
  return counts;
}

}  // namespace moed
