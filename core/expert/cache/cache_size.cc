// The part of ExpertCache that its operator and the activations ask for: another size, memory that is lent, records that are to
// be there.
#include <algorithm>
#include <utility>

#include "core/base/byte_size.h"
#include "core/base/check.h"
#include "core/base/status.h"
#include "core/expert/cache/cache.h"

namespace moed {

absl::StatusOr<std::span<std::byte>> ExpertCache::Lend(uint64_t bytes) {
  bytes = RoundUp(bytes, kPageBytes);
  MOED_CHECK(left_ == 0);
  CountedLock lock(mutex_);
  const bool held = std::exchange(held_, false);  // the step that relied on where everything lies has failed
  SlotPool& pool = room_.pool();
  const bool returned = bytes == 0 && pool.lends();
  room_.Lend(bytes);
  RetryAnchored();
  if (returned && !filler_.over()) filler_.Restart();  // some of what it had read has left
  if (bytes == 0) {
    if (returned || held || idle_reads_left_) StartIdleReads();
    return std::span<std::byte>();
  }
  MOED_ASSIGN_OR_RETURN(const std::span<std::byte> lent, pool.Lent());
  if (device_ != nullptr) device_->SettleAll();
  const auto is_there = [&](const Slot& slot) { return InHost(slot) && pool.ReachesLent(slot.bytes); };
  const auto all_read = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::ranges::none_of(slots_.all(), [&](const auto& slot) { return is_there(*slot) && slot->reads_left > 0; });
  };
  mutex_.Await(absl::Condition(&all_read));
  for (const auto& slot : slots_.all()) {
    if (!is_there(*slot)) continue;
    if (!anchors_.Has(slot->key) || !MoveAway(*slot)) LeaveForNewSize(*slot);
  }
  return lent;
}

// Who leaves first is what was used least, wherever it lies; what then lies beyond the end moves into the holes.
absl::Status ExpertCache::Resize(uint64_t capacity_bytes) {
  if (left_ > 0 || handles_ > 0) return FailedPrecondition("the cache keeps its size: the last step was broken off in a layer");
  CountedLock lock(mutex_);
  SlotPool& pool = room_.pool();
  MOED_RETURN_IF_ERROR(pool.Allocate());
  resizing_ = true;
  AwaitAllReads();
  absl::Status refused = CheckSize(capacity_bytes);  // only now: while it waited others may have been anchored
  if (refused.ok()) refused = policy_->SetCapacity(capacity_bytes);
  if (!refused.ok()) {
    resizing_ = false;
    StartIdleReads();
    return refused;
  }
  const bool grows = capacity_bytes > pool.capacity_bytes();
  room_.Resize(capacity_bytes);
  while (pool.in_use_bytes() > pool.available_bytes()) {
    Slot* coldest = room_.Coldest(turn_);
    MOED_CHECK(coldest != nullptr);
    Evict(*coldest, EvictionReason::kResize);
  }
  for (const auto& slot : slots_.all()) {
    if (!InHost(*slot) || !pool.ReachesBeyond(slot->bytes)) continue;
    if (!MoveAway(*slot)) LeaveForNewSize(*slot);
  }
  pool.GiveBackBeyond();
  resizing_ = false;
  if (grows) filler_.Restart();
  StartIdleReads();
  return absl::OkStatus();
}

absl::Status ExpertCache::CheckSize(uint64_t capacity_bytes) {
  const SlotPool& pool = room_.pool();
  if (device_ != nullptr || !pool.gives_back()) {
    return FailedPrecondition(
        "the cache keeps its size: a device reads its memory where it is, so that no page can be given back");
  }
  if (capacity_bytes > pool.most_bytes() || capacity_bytes < least_bytes_) {
    return FailedPrecondition("an expert cache of ", capacity_bytes, " bytes: allowed are ", least_bytes_, " (",
                              FormatBytes(least_bytes_), ") to ", pool.most_bytes(), " (", FormatBytes(pool.most_bytes()), ")");
  }
  const uint64_t most = MostAnchored(capacity_bytes);
  if (anchors_.bytes() <= most) return absl::OkStatus();
  return FailedPrecondition("an expert cache of ", capacity_bytes, " bytes (", FormatBytes(capacity_bytes), ") has room for ",
                            FormatBytes(most), " of pinned experts, and ", anchors_.count(), " that take ",
                            FormatBytes(anchors_.bytes()), " are pinned: unpin some first");
}

// Beside what is anchored a layer goes on with what is left: as much as it needs at least, and two records, of which one is read
// while the other is used.
uint64_t ExpertCache::MostAnchored(uint64_t capacity_bytes) const {
  const uint64_t for_others = least_bytes_ + 2 * largest_record_bytes_;
  return capacity_bytes - std::min(capacity_bytes, for_others);
}

// Nothing new is begun meanwhile: no layer runs, and nothing is read ahead.
void ExpertCache::AwaitAllReads() {
  const auto all_read = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::ranges::none_of(slots_.all(), [](const auto& slot) { return slot->reads_left > 0; });
  };
  mutex_.Await(absl::Condition(&all_read));
}

bool ExpertCache::MoveAway(Slot& slot) {
  if (slot.state != RecordState::kResident || slot.bypass || slot.pins > 0) return false;
  std::span<std::byte> to = room_.pool().Move(slot.bytes);
  while (to.empty() && anchors_.Has(slot.key)) {
    Slot* coldest = room_.Coldest(turn_);
    if (coldest == nullptr) return false;
    Evict(*coldest, EvictionReason::kResize);
    to = room_.pool().Move(slot.bytes);
  }
  if (to.empty()) return false;
  slots_.Move(slot, to);
  return true;
}

// An anchored one that found no place comes back.
void ExpertCache::LeaveForNewSize(Slot& slot) {
  AskForAnchored(slot.key);
  Evict(slot, EvictionReason::kResize);
}

void ExpertCache::AskForAnchored(const CachedKey& key) {
  if (!anchors_.Has(key)) return;
  asked_.Add(key);
  idle_reads_left_ = true;
}

// Those that could not be read, once it is time.
void ExpertCache::RetryAnchored() {
  if (!anchored_retry_.waiting() || !anchored_retry_.TakeDue(clock_.NowNanos())) return;
  for (size_t i = 0; anchors_.count() > 0 && i < index().size(); ++i) {
    if (slots_.Find(index().KeyAt(i)) == nullptr) AskForAnchored(index().KeyAt(i));
  }
}

// All or none.
absl::Status ExpertCache::Anchor(std::span<const CachedKey> keys) {
  CountedLock lock(mutex_);
  const uint64_t most = MostAnchored(room_.pool().capacity_bytes());
  uint64_t bytes = anchors_.bytes();
  size_t fitting = anchors_.count();
  for (const CachedKey& key : keys) {
    if (anchors_.Has(key)) continue;
    bytes += anchors_.BytesFor(key);
    if (bytes <= most) ++fitting;
  }
  if (bytes > most) {
    return FailedPrecondition("the expert cache has room for ", FormatBytes(most), " of pinned experts, and these would take ",
                              FormatBytes(bytes), ": ", fitting, " experts may be pinned, so that every layer still goes on");
  }
  for (const CachedKey& key : keys) {
    anchors_.Set(key, true);
    Slot* slot = slots_.Find(key);
    if (slot == nullptr) {
      asked_.Add(key);
    } else if (slot->unused_fill) {  // no free room any more
      const bool reading = slot->state == RecordState::kLoading;
      filler_.Forget(*slot);
      if (reading) filler_.BegunAsked(*slot);
      policy_->OnInsert(key, slot->bytes.size());
    }
  }
  StartIdleReads();
  return absl::OkStatus();
}

void ExpertCache::Unanchor(std::span<const CachedKey> keys) {
  CountedLock lock(mutex_);
  for (const CachedKey& key : keys) anchors_.Set(key, false);
}

void ExpertCache::UnanchorAll() {
  CountedLock lock(mutex_);
  anchors_.Clear();
}

// In order, as far as they find room beside what is anchored.
size_t ExpertCache::Ask(std::span<const CachedKey> keys) {
  CountedLock lock(mutex_);
  uint64_t left = MostAnchored(room_.pool().capacity_bytes());
  left -= std::min(left, anchors_.bytes());
  size_t taken = 0;
  for (const CachedKey& key : keys) {
    const uint64_t bytes = anchors_.Has(key) ? 0 : store_.expert_bytes(key);
    if (bytes > left) break;
    left -= bytes;
    asked_.Add(key);
    ++taken;
  }
  StartIdleReads();
  return taken;
}

std::vector<CachedKey> ExpertCache::Anchored() const {
  CountedLock lock(mutex_);
  std::vector<CachedKey> keys;
  for (size_t i = 0; anchors_.count() > keys.size(); ++i) {
    if (anchors_.Has(index().KeyAt(i))) keys.push_back(index().KeyAt(i));
  }
  return keys;
}

}  // namespace moed
