#include "core/expert/cache/asked_reads.h"

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
    if (slots.Find(key) == nullptr) return key;
    Begun();
  }
  return std::nullopt;
}

void AskedReads::Pop(uint64_t& what) {
  waits_[waiting_[next_]] = false;
  ++next_;
  ++what;
}

AskedCounts AskedReads::counts() const {
  AskedCounts counts = counts_;
  counts.waiting = waiting_.size() - next_;
  return counts;
}

}  // namespace moed
