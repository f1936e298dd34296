// The half of ExpertCache that moves bytes: room for a record, eviction, loads from their start to their end.
#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/expert/cache/cache.h"

namespace moed {
namespace {

EvictionReason EvictionFor(LoadReason reason) {
  MOED_CHECK(reason != LoadReason::kFill);
  return reason == LoadReason::kDemand ? EvictionReason::kDemand : EvictionReason::kPrefetch;
}

}  // namespace

void ExpertCache::StartWaitingDemands(Cancels& cancels) {
  if (closing_) return;
  while (!waiting_.empty()) {
    if (!StartDemand(waiting_.front())) {
      // What is queued for later layers gives its slots up; what is in flight will be evictable once it has arrived.
      CancelGuesses(cancels, [](const Slot&) { return true; });
      return;
    }
    waiting_.pop_front();
  }
}

// False when it has to wait for a slot.
bool ExpertCache::StartDemand(int item_number) {
  Item& item = items_[item_number];
  const uint64_t bytes = store_.expert_bytes(item.key.precision);
  std::span<std::byte> room;
  absl::StatusOr<Admission> admission = MakeRoom({item.key, bytes, LoadReason::kDemand, layer_}, room);
  const bool bypass = admission.ok() && *admission == Admission::kRefused;
  if (bypass) admission = MakeBypassRoom(bytes, room);
  if (!admission.ok()) {
    ++stats_.failed_loads;
    item.status = admission.status();
    ready_.push_back(item_number);
    return true;
  }
  if (*admission == Admission::kNotNow) return false;
  Slot& slot = StartLoad(item.key, LoadReason::kDemand, room, bypass);
  slot.pins = 1;
  slot.wanted_at = layers_begun_;
  slot.item = item_number;
  item.slot = &slot;
  item.read_bytes = bytes;
  return true;
}

// What is planned and may begin now; the rest stays planned until a read ends or the next layer begins.
void ExpertCache::StartGuesses() {
  size_t begun = 0;
  for (; begun < planned_.size() && waiting_.empty(); ++begun) {
    if (loading_guesses_.size() >= static_cast<size_t>(budget_.max_loading) || (budget_.when_idle && DemandsLeft())) break;
    const CachedKey key = planned_[begun];
    if (by_key_[index_.Of(key)] != nullptr) continue;
    std::span<std::byte> room;
    const absl::StatusOr<Admission> admission =
        MakeRoom({key, store_.expert_bytes(key.precision), LoadReason::kPrefetch, layer_}, room);
    if (!admission.ok() || *admission == Admission::kNotNow) break;  // until something is unpinned
    if (*admission == Admission::kRefused) continue;
    Slot& slot = StartLoad(key, LoadReason::kPrefetch, room, /*bypass=*/false);
    slot.due_at = layers_begun_ + static_cast<uint64_t>(index_.Distance(layer_, key.layer));
    slot.unused_guess = true;
    slot.kept = budget_.keep_guessed;
    loading_guesses_.push_back(&slot);
  }
  planned_.erase(planned_.begin(), planned_.begin() + static_cast<std::ptrdiff_t>(begun));
}

// The next absent record, where there is free room and nothing else is read or waits to be.
void ExpertCache::StartFill() {
  if (closing_ || loading_ > 0 || !waiting_.empty() || !planned_.empty()) return;
  while (fill_next_ < fill_.size() && by_key_[index_.Of(fill_[fill_next_])] != nullptr) ++fill_next_;
  if (fill_next_ == fill_.size()) return;
  const CachedKey key = fill_[fill_next_];
  const absl::StatusOr<std::span<std::byte>> room =
      pool_.Take(store_.expert_bytes(key.precision), bypass_reserve_bytes_ - bypass_bytes_);
  if (!room.ok()) return;  // a demand will say why there is no memory
  if (room->empty()) {
    fill_next_ = fill_.size();  // full once is full: what guesses and failures give up later is left to demands
    return;
  }
  ++fill_next_;
  filling_ = &StartLoad(key, LoadReason::kFill, *room, /*bypass=*/false);
  filling_->unused_fill = true;
  unused_fills_.push_back(filling_);
}

// It is wanted, or leaves.
void ExpertCache::ForgetFill(Slot& slot) {
  slot.unused_fill = false;
  std::erase(unused_fills_, &slot);
  if (filling_ == &slot) filling_ = nullptr;
}

ExpertCache::Slot* ExpertCache::LastUnusedFill(LoadReason reason, bool spare_kept) const {
  const auto evictable = [&](const Slot* slot)
                             ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return Evictable(*slot, reason, spare_kept); };
  const auto last = std::find_if(unused_fills_.rbegin(), unused_fills_.rend(), evictable);
  return last == unused_fills_.rend() ? nullptr : *last;
}

ExpertCache::Slot& ExpertCache::StartLoad(const CachedKey& key, LoadReason reason, std::span<std::byte> room, bool bypass) {
  if (free_slots_.empty()) free_slots_.push_back(slots_.emplace_back(std::make_unique<Slot>(*this)).get());
  Slot& slot = *free_slots_.back();
  free_slots_.pop_back();
  slot.key = key;
  slot.bytes = room;
  slot.state = SlotState::kLoading;
  ++loading_;
  slot.reason = reason;
  slot.bypass = bypass;
  slot.queued_nanos = clock_.NowNanos();
  slot.reads_left = loader_.ReadsOf(key.precision);
  by_key_[index_.Of(key)] = &slot;
  if (bypass) {
    bypass_bytes_ += slot.bytes.size();
    ++stats_.bypass_loads;
  } else if (reason != LoadReason::kFill) {
    policy_->OnInsert(key, slot.bytes.size());
  }
  // Reads report on threads of the backend, which wait for the lock held here: the tickets are set before anyone looks at them.
  slot.tickets = loader_.Start(slot, reason == LoadReason::kDemand ? ReadPriority::kDemand : ReadPriority::kPrefetch);
  return slot;
}

absl::StatusOr<ExpertCache::Admission> ExpertCache::MakeRoom(const Incoming& incoming, std::span<std::byte>& room) {
  if (pool_.available_bytes() < bypass_reserve_bytes_ + incoming.bytes) return Admission::kRefused;
  for (;;) {
    MOED_ASSIGN_OR_RETURN(room, pool_.Take(incoming.bytes, bypass_reserve_bytes_ - bypass_bytes_));
    if (room.size() > 0) return Admission::kAdmitted;
    const auto any = [&](bool spare) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return std::any_of(slots_.begin(), slots_.end(),
                         [&](const std::unique_ptr<Slot>& slot)
                             ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return Evictable(*slot, incoming.reason, spare); });
    };
    const bool spare_kept = any(true);
    if (!spare_kept && (incoming.reason == LoadReason::kPrefetch || !any(false))) return Admission::kNotNow;
    if (Slot* fill = LastUnusedFill(incoming.reason, spare_kept)) {
      Evict(*fill, EvictionFor(incoming.reason));
      continue;
    }
    const auto evictable = [&](CachedKey key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      const Slot* slot = by_key_[index_.Of(key)];
      return slot != nullptr && Evictable(*slot, incoming.reason, spare_kept);
    };
    const std::optional<CachedKey> victim = policy_->Victim(incoming, evictable);
    if (!victim) return Admission::kRefused;
    MOED_CHECK(evictable(*victim));
    Evict(*by_key_[index_.Of(*victim)], EvictionFor(incoming.reason));
  }
}

// The policy says who is admitted, the capacity who fits: the first refusal takes room from the admitted and keeps it for records
// that are used once. Two of them where that leaves as much for the others, so that one is read while the other is used.
absl::StatusOr<ExpertCache::Admission> ExpertCache::MakeBypassRoom(uint64_t bytes, std::span<std::byte>& room) {
  if (bypass_reserve_bytes_ == 0) {
    bypass_reserve_bytes_ = largest_record_bytes_ * (pool_.capacity_bytes() >= 4 * largest_record_bytes_ ? 2 : 1);
  }
  if (bypass_bytes_ + bytes > bypass_reserve_bytes_) return Admission::kNotNow;
  for (;;) {
    MOED_ASSIGN_OR_RETURN(room, pool_.Take(bytes, 0));
    if (room.size() > 0) return Admission::kAdmitted;
    Slot* coldest = Coldest();
    if (coldest == nullptr) return Admission::kNotNow;
    Evict(*coldest, EvictionReason::kDemand);
  }
}

ExpertCache::Slot* ExpertCache::Coldest() const {
  if (Slot* fill = LastUnusedFill(LoadReason::kDemand, /*spare_kept=*/false)) return fill;
  Slot* coldest = nullptr;
  for (const std::unique_ptr<Slot>& slot : slots_) {
    if (!Evictable(*slot, LoadReason::kDemand, /*spare_kept=*/false)) continue;
    if (coldest == nullptr || uses_[index_.Of(slot->key)] < uses_[index_.Of(coldest->key)]) coldest = slot.get();
  }
  return coldest;
}

// What was guessed stays until its layer has come.
void ExpertCache::KeepGuessed(std::span<const Guess> guesses) {
  for (const Guess& guess : guesses) {
    for (int precision = 0; precision <= guess.precision; ++precision) {
      Slot* slot = by_key_[index_.Of({guess.key.layer, guess.key.expert, static_cast<Precision>(precision)})];
      if (slot == nullptr) continue;
      slot->kept = true;
      slot->due_at = std::max(slot->due_at, layers_begun_ + static_cast<uint64_t>(index_.Distance(layer_, guess.key.layer)));
    }
  }
}

// A demand takes what nobody holds, last what is kept. A guess also spares other guesses whose layer is still to come, and what
// this layer wants: the next token may want it again. A prompt is through with it.
bool ExpertCache::Evictable(const Slot& slot, LoadReason reason, bool spare_kept) const {
  if (slot.state != SlotState::kResident || slot.pins > 0 || slot.bypass) return false;
  if (spare_kept && slot.kept && slot.due_at > layers_begun_) return false;
  if (reason == LoadReason::kDemand) return true;
  return (phase_ == Phase::kPrefill || slot.wanted_at != layers_begun_) && !(slot.unused_guess && slot.due_at > layers_begun_);
}

absl::StatusOr<std::span<std::byte>> ExpertCache::Lend(uint64_t bytes) {
  bytes = RoundUp(bytes, kPageBytes);
  absl::MutexLock lock(&mutex_);
  MOED_CHECK(handed_out_ == items_.size() && bytes + largest_record_bytes_ <= pool_.capacity_bytes());
  pool_.Lend(bytes);
  if (bytes == 0) return std::span<std::byte>();
  MOED_ASSIGN_OR_RETURN(const std::span<std::byte> lent, pool_.Lent());
  const auto is_there = [&](const Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !slot.bytes.empty() && pool_.ReachesLent(slot.bytes);
  };
  const auto all_read = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::ranges::none_of(
        slots_, [&](const auto& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return is_there(*slot) && slot->reads_left > 0; });
  };
  mutex_.Await(absl::Condition(&all_read));
  for (const std::unique_ptr<Slot>& slot : slots_) {
    if (is_there(*slot)) Evict(*slot, EvictionReason::kResize);
  }
  return lent;
}

void ExpertCache::Evict(Slot& slot, EvictionReason why) {
  ++stats_.evictions[slot.key.precision][EnumIndex(why)];
  if (slot.unused_guess) {
    stats_.wasted_prefetch_bytes += slot.bytes.size();
    ForgetGuess(slot, PrefetchOutcome::kWasted);
  }
  ForgetInOrder(slot);
  Release(slot);
}

// What leaves is among the unused fills or known to the policy, never both; a bypass is neither.
void ExpertCache::ForgetInOrder(Slot& slot) {
  if (slot.unused_fill) {
    ForgetFill(slot);
  } else if (!slot.bypass) {
    policy_->OnEvict(slot.key);
  }
}

void ExpertCache::Release(Slot& slot) {
  MOED_CHECK(slot.pins == 0 && slot.reads_left == 0);
  if (slot.state == SlotState::kResident) {
    by_key_[index_.Of(slot.key)] = nullptr;
    --ResidentCount(slot.key);
  }
  if (slot.bypass) bypass_bytes_ -= slot.bytes.size();
  pool_.Return(slot.bytes);
  slot.bytes = {};
  slot.tickets = {};
  slot.status = absl::OkStatus();
  slot.wanted_at = 0;
  slot.due_at = 0;
  slot.kept = false;
  slot.arrived = 0;
  slot.cancelling = false;
  slot.state = SlotState::kFree;
  free_slots_.push_back(&slot);
}

void ExpertCache::OnRead(LoadTarget& target, int read, absl::Status outcome) {
  Slot& slot = static_cast<Slot&>(target);
  Cancels cancels;
  {
    absl::MutexLock lock(&mutex_);
    --slot.reads_left;
    if (slot.state == SlotState::kLoading && !outcome.ok()) Fail(slot, std::move(outcome));
    if (slot.state == SlotState::kLoading) {
      slot.arrived |= 1 << read;
      if (read == 0 && slot.item != kNoItem) ready_.push_back(std::exchange(slot.item, kNoItem));
    }
    if (slot.reads_left == 0) Finish(slot);
    if (demands_reading_ && !DemandsLeft()) {
      demands_reading_ = false;
      pace_.OnDemandsRead(clock_.NowNanos());
    }
    StartWaitingDemands(cancels);
    if (!closing_) StartGuesses();
    StartFill();
  }
  RunCancels(cancels);
}

// Absent from now on: a later demand reads again, into another slot. Handles keep what had arrived.
void ExpertCache::Fail(Slot& slot, absl::Status status) {
  const bool cancelled = slot.cancelling && absl::IsCancelled(status);
  if (!cancelled && !closing_) ++stats_.failed_loads;
  if (slot.unused_guess) ForgetGuess(slot, cancelled ? PrefetchOutcome::kCancelled : PrefetchOutcome::kWasted);
  by_key_[index_.Of(slot.key)] = nullptr;
  ForgetInOrder(slot);
  slot.state = SlotState::kFailed;
  --loading_;
  slot.status = std::move(status);
  if (slot.item == kNoItem) return;
  Item& item = items_[slot.item];
  if (cancelled) {  // wanted after its cancellation was decided and before it was done
    waiting_.push_front(slot.item);
  } else {
    item.status = slot.status;
    ready_.push_back(slot.item);
  }
  item.slot = nullptr;
  slot.item = kNoItem;
  --slot.pins;
}

// After the last read.
void ExpertCache::Finish(Slot& slot) {
  if (slot.state == SlotState::kLoading) {
    slot.state = SlotState::kResident;
    --loading_;
    if (!closing_) {
      const int64_t busy_nanos = loader_.stats().busy_nanos;
      pace_.OnRecordRead(busy_nanos);
      prices_.OnRecordRead(slot.key.precision, busy_nanos);
    }
    ++ResidentCount(slot.key);
    if (slot.unused_guess) std::erase(loading_guesses_, &slot);
    if (filling_ == &slot) filling_ = nullptr;
    const double seconds = SecondsBetween(slot.queued_nanos, clock_.NowNanos());
    LoadHistogram& histogram = stats_.loads[EnumIndex(slot.reason)];
    const auto bucket = std::lower_bound(kLoadSecondsBounds.begin(), kLoadSecondsBounds.end(), seconds);
    ++histogram.buckets[bucket - kLoadSecondsBounds.begin()];
    ++histogram.count;
    histogram.sum_seconds += seconds;
    stats_.load_bytes[slot.key.precision][EnumIndex(slot.reason)] += slot.bytes.size();
  }
  const bool leaves = slot.state == SlotState::kFailed || slot.bypass;
  if (slot.pins == 0 && leaves) Release(slot);
}

void ExpertCache::ForgetGuess(Slot& slot, PrefetchOutcome outcome) {
  ++stats_.prefetches[EnumIndex(outcome)];
  if (outcome != PrefetchOutcome::kCancelled) pace_.OnOutcome(outcome != PrefetchOutcome::kWasted);
  if (outcome == PrefetchOutcome::kUsed || outcome == PrefetchOutcome::kLate) {
    const double since_queued = SecondsBetween(slot.queued_nanos, clock_.NowNanos());
    const std::span<const double> a_read = prices_.prices(phase_).read_seconds;
    if (!a_read.empty()) stats_.prefetch_saved_seconds += std::min(since_queued, a_read[slot.key.precision]);
  }
  slot.unused_guess = false;
  if (slot.state == SlotState::kLoading) std::erase(loading_guesses_, &slot);
}

void ExpertCache::CancelGuesses(Cancels& cancels, absl::FunctionRef<bool(const Slot&)> which) {
  for (Slot* slot : loading_guesses_) {
    if (slot->cancelling || !which(*slot)) continue;
    slot->cancelling = true;
    cancels.push_back(slot->tickets);
  }
}

void ExpertCache::RunCancels(const Cancels& cancels) {
  for (const Loader::Tickets& tickets : cancels) loader_.Cancel(tickets);
}

uint32_t& ExpertCache::ResidentCount(const CachedKey& key) {
  return stats_.layers[index_.Position(key.layer)].resident[key.precision];
}

}  // namespace moed
