// The half of ExpertCache that moves bytes: loads from their beginning to their end, and what they push out.
#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/expert/cache/cache.h"

namespace moed {
namespace {

using Answer = Room::Answer;

EvictionReason EvictionFor(LoadReason reason) {
  MOED_CHECK(reason != LoadReason::kFill);
  return reason == LoadReason::kDemand ? EvictionReason::kDemand : EvictionReason::kPrefetch;
}

}  // namespace

void ExpertCache::StartWaitingDemands(Cancels& cancels) {
  if (closing_) return;
  if (device_ != nullptr) device_->Settle();
  pins_awaited_ = turn_.waiting() || guesses_.planned();
  for (; turn_.waiting(); turn_.PopWaiting()) {
    if (StartDemand(turn_.FirstWaiting())) continue;
    // What is queued for later layers gives its slots up; what is in flight will be evictable once it has arrived.
    guesses_.Cancel([](const Slot&) { return true; }, cancels);
    return;
  }
  pins_awaited_ = guesses_.planned();
}

// Nobody else tells that a move has ended.
void ExpertCache::SettleMovesThatDemandsAwait(Cancels& cancels) {
  if (device_ == nullptr || turn_.any_ready() || !turn_.waiting()) return;
  device_->SettleAll();
  StartWaitingDemands(cancels);
}

// False when it has to wait for a slot.
bool ExpertCache::StartDemand(int item_number) {
  LayerTurn::Item& item = turn_.item(item_number);
  const uint64_t bytes = store_.expert_bytes(item.key);
  absl::StatusOr<Room::Place> place = MakeRoom({item.key, bytes, LoadReason::kDemand, turn_.layer()});
  const bool bypass = place.ok() && place->answer == Answer::kRefused;
  if (bypass) place = MakeBypassRoom(bytes);
  if (!place.ok()) {
    statistics_.CountFailedLoad(place.status());
    item.status = place.status();
    turn_.Ready(item_number);
    return true;
  }
  if (place->answer == Answer::kNotNow) return false;
  item.read_bytes = store_.stored_bytes(item.key);
  Slot& slot = StartLoad(item.key, LoadReason::kDemand, ReadPriority::kDemand, place->bytes, bypass);
  if (item.tokens > 0) CountReuse(slot);
  turn_.Hold(item_number, slot);
  return true;
}

// The next planned one, where nothing else is read or waits to be, so that a demand that comes waits behind one record at most,
// or behind pieces of one; the rest stays planned until a read ends or the next layer begins.
void ExpertCache::StartGuesses() {
  pins_awaited_ = turn_.waiting() || guesses_.planned() || between_tokens_;
  bool room = true;
  while (room && guesses_.planned() && MayReadAhead()) {
    room = slots_.Find(guesses_.Next()) != nullptr || StartGuess(guesses_.Next());
    if (room) guesses_.PopNext();
  }
  if (room && between_tokens_ && MayReadAhead()) room = StartWish();
  pins_awaited_ = turn_.waiting() || !room;
}

// As StartGuess.
bool ExpertCache::StartWish() {
  const auto absent = [this](const CachedKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return slots_.Find(key) == nullptr; };
  const auto leaves = [this](const CachedKey& key)
                          ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return room_.LeavesForGuess(key, turn_); };
  const float least = guesses_.pace().LeastProbability(PrefetchPace::kBetweenTokens);
  const std::optional<CachedKey> wish = policy_->Wish(turn_.layer(), least, absent, leaves);
  if (!wish) return true;
  const uint64_t bytes = store_.expert_bytes(*wish);
  const absl::StatusOr<Room::Place> place = MakeRoom({*wish, bytes, LoadReason::kPrefetch, turn_.layer()});
  if (!place.ok() || place->answer == Answer::kNotNow) return false;
  if (place->answer == Answer::kHere) {
    guesses_.BegunWish(StartLoad(*wish, LoadReason::kPrefetch, ReadPriority::kIdle, place->bytes, /*bypass=*/false),
                       DueAt(wish->layer));
  }
  return true;
}

// False when there is no room until something is unpinned. What the policy refuses is let go.
bool ExpertCache::StartGuess(const CachedKey& key) {
  const uint64_t bytes = store_.expert_bytes(key);
  const absl::StatusOr<Room::Place> place = MakeRoom({key, bytes, LoadReason::kPrefetch, turn_.layer()});
  if (!place.ok() || place->answer == Answer::kNotNow) return false;
  if (place->answer == Answer::kHere) {
    const ReadPriority priority = guesses_.NextGivesWay() ? ReadPriority::kIdle : ReadPriority::kPrefetch;
    guesses_.Begun(StartLoad(key, LoadReason::kPrefetch, priority, place->bytes, /*bypass=*/false), DueAt(key.layer));
  }
  return true;
}

void ExpertCache::StartIdleReads() {
  if (closing_ || resizing_ || held_ || slots_.loading() > 0 || turn_.waiting() || guesses_.planned()) return;
  if (device_ != nullptr) device_->Settle();
  if (!StartAsked()) StartFill();
}

// False where nothing is asked for any more.
bool ExpertCache::StartAsked() {
  while (const std::optional<CachedKey> next = asked_.Next(slots_)) {
    idle_reads_left_ = true;
    const absl::StatusOr<Room::Place> place = MakeAskedRoom(*next);
    if (place.ok() && place->answer == Answer::kRefused) {
      asked_.Refused();
      continue;
    }
    if (!place.ok() || place->answer == Answer::kNotNow) return true;
    Slot& slot = StartLoad(*next, LoadReason::kFill, ReadPriority::kPrefetch, place->bytes, /*bypass=*/false);
    asked_.Begun(slot);
    policy_->OnInsert(slot.key, slot.bytes.size());
    filler_.BegunAsked(slot);
    return true;
  }
  return false;
}

// The next absent record, where there is free room.
void ExpertCache::StartFill() {
  const std::optional<CachedKey> next = filler_.Next(slots_);
  HandOverKnown();
  idle_reads_left_ = next.has_value();
  if (!next) return;
  const absl::StatusOr<std::span<std::byte>> free = room_.Free(store_.expert_bytes(*next));
  if (!free.ok()) return;  // a demand will say why there is no memory
  if (free->empty()) {
    if (room_.pool().lends() || (device_ != nullptr && device_->moving())) return;  // room comes
    filler_.Stop();
    HandOverKnown();
    idle_reads_left_ = false;
    return;
  }
  filler_.Begun(StartLoad(*next, LoadReason::kFill, ReadPriority::kPrefetch, *free, /*bypass=*/false));
}

// The order is that of use, most first. So the policy hears of the others first.
void ExpertCache::HandOverKnown() {
  for (const Slot* slot : filler_.TakeKnown()) policy_->OnInsert(slot->key, slot->bytes.size());
}

Slot& ExpertCache::StartLoad(const CachedKey& key, LoadReason reason, ReadPriority priority, std::span<std::byte> bytes,
                             bool bypass) {
  Slot& slot = slots_.Begin(key, bytes, reason, bypass, loader_.ReadsOf(key), clock_.NowNanos());
  if (bypass) {
    room_.CountBypass(slot);
    statistics_.CountBypass();
  } else if (reason != LoadReason::kFill) {
    policy_->OnInsert(key, slot.bytes.size());
  }
  // Reads report on threads of the backend, which wait for the lock held here: the tickets are set before anyone looks at them.
  slot.tickets = loader_.Start(slot, priority);
  return slot;
}

absl::StatusOr<Room::Place> ExpertCache::MakeRoom(const Incoming& incoming) {
  for (;;) {
    MOED_ASSIGN_OR_RETURN(const Room::Place place, room_.ForAdmitted(incoming, turn_));
    if (place.answer != Answer::kEvictFirst) return place;
    Evict(*place.leaves, EvictionFor(incoming.reason));
  }
}

absl::StatusOr<Room::Place> ExpertCache::MakeBypassRoom(uint64_t bytes) {
  for (;;) {
    MOED_ASSIGN_OR_RETURN(const Room::Place place, room_.ForBypass(bytes, turn_));
    if (place.answer != Answer::kEvictFirst) return place;
    Evict(*place.leaves, EvictionReason::kDemand);
  }
}

// What is anchored comes in any case; what was asked for as if it were wanted.
absl::StatusOr<Room::Place> ExpertCache::MakeAskedRoom(const CachedKey& key) {
  const uint64_t bytes = store_.expert_bytes(key);
  const Incoming incoming{key, bytes, LoadReason::kDemand, turn_.number() > 0 ? turn_.layer() : key.layer};
  for (;;) {
    MOED_ASSIGN_OR_RETURN(const Room::Place place,
                          anchors_.Has(key) ? room_.ForAnchored(bytes, turn_) : room_.ForAdmitted(incoming, turn_));
    if (place.answer != Answer::kEvictFirst) return place;
    Evict(*place.leaves, EvictionReason::kPrefetch);
  }
}

// What was guessed up to `farthest` layers ahead stays until its layer has come, at whatever precision serves.
void ExpertCache::KeepGuessed(std::span<const Guess> guesses, int farthest) {
  for (const Guess& guess : guesses) {
    if (guess.layer_distance > farthest) continue;
    for (int precision = 0; precision <= guess.precision; ++precision) {
      Slot* slot = slots_.Find({guess.key.layer, guess.key.expert, static_cast<Precision>(precision)});
      if (slot != nullptr) guesses_.Keep(*slot, DueAt(guess.key.layer));
    }
  }
}

void ExpertCache::EndGuess(Slot& slot, PrefetchOutcome outcome) {
  double saved_seconds = 0;
  if (outcome == PrefetchOutcome::kUsed || outcome == PrefetchOutcome::kLate) {
    const std::span<const double> a_read = timing_.prices(turn_.phase()).read_seconds;
    const double since_queued = SecondsBetween(slot.queued_nanos, clock_.NowNanos());
    if (!a_read.empty()) saved_seconds = std::min(since_queued, a_read[slot.key.precision]);
  }
  statistics_.CountOutcome(outcome, saved_seconds);
  guesses_.Forget(slot, outcome);
}

// It is absent for those who look without the lock before the policy hears of it: SwapMoE's mask spares what is about to leave
// until then.
void ExpertCache::Evict(Slot& slot, EvictionReason why) {
  statistics_.CountEviction(slot, why);
  if (slot.unused_guess) {
    statistics_.CountWastedGuess(store_.stored_bytes(slot.key));
    EndGuess(slot, PrefetchOutcome::kWasted);
  }
  Release(slot);
  ForgetInOrder(slot);
}

// What leaves is among the unused fills or known to the policy, never both; a bypass is neither.
void ExpertCache::ForgetInOrder(Slot& slot) {
  if (slot.unused_fill) {
    filler_.Forget(slot);
  } else if (!slot.bypass) {
    policy_->OnEvict(slot.key);
  }
}

void ExpertCache::Release(Slot& slot) {
  MOED_CHECK(!slot.on_device);  // it sinks before it leaves
  if (slot.times_used == 1 && slot.state == RecordState::kResident) timing_.OnUsedAgain(false);
  room_.Return(slot);
  slots_.Free(slot);
}

void ExpertCache::ReleaseIfOver(Slot& slot) {
  const bool over = slot.state != RecordState::kAbsent && slot.leaves_unpinned() && slot.pins == 0 && slot.reads_left == 0;
  if (!over) return;
  const CachedKey key = slot.key;
  const bool was_there = slot.state == RecordState::kResident;
  Release(slot);
  if (was_there) AskForAnchored(key);  // a bypass leaves after its use; one that failed was seen to when it did
}

void ExpertCache::OnRead(LoadTarget& target, int read, absl::Status outcome) {
  Slot& slot = static_cast<Slot&>(target);
  Cancels cancels;
  {
    CountedLock lock(mutex_);
    --slot.reads_left;
    if (absl::IsCancelled(outcome) && !closing_) CountGivenUp(slot);
    if (slot.state == RecordState::kLoading && !outcome.ok()) Fail(slot, std::move(outcome));
    if (slot.state == RecordState::kLoading) {
      slot.arrived |= static_cast<uint8_t>(1 << read);
      if (read == 0 && slot.item != Slot::kNoItem) turn_.Ready(std::exchange(slot.item, Slot::kNoItem));
    }
    if (slot.reads_left == 0) Finish(slot);
    if (demands_reading_ && !DemandsLeft()) {
      demands_reading_ = false;
      guesses_.pace().OnDemandsRead(clock_.NowNanos());
    }
    StartWaitingDemands(cancels);
    if (!closing_) StartGuesses();
    StartIdleReads();
  }
  RunCancels(cancels);
}

// One guess is given up at a time, and nothing else: what was read of cancelled reads since the last time is its.
void ExpertCache::CountGivenUp(const Slot& slot) {
  const uint64_t bytes = loader_.stats().cancelled_bytes;
  statistics_.CountGivenUp(slot, bytes - std::exchange(given_up_bytes_, bytes));
}

void ExpertCache::Fail(Slot& slot, absl::Status status) {
  const bool cancelled = slot.cancelling && absl::IsCancelled(status);
  if (!cancelled && !closing_) statistics_.CountFailedLoad(status);
  if (!cancelled && slot.unused_guess && slot.wished) between_tokens_ = false;  // or it would be wished for again, at once
  if (slot.unused_guess) EndGuess(slot, cancelled ? PrefetchOutcome::kCancelled : PrefetchOutcome::kWasted);
  ForgetInOrder(slot);
  filler_.Arrived(slot);
  slots_.Fail(slot, std::move(status));
  if (!closing_) MissAsked(slot, cancelled);
  if (slot.item == Slot::kNoItem) return;
  LayerTurn::Item& item = turn_.item(slot.item);
  if (cancelled) {  // wanted after its cancellation was decided and before it was done
    turn_.WaitFirst(slot.item);
  } else {
    item.status = slot.status;
    turn_.Ready(slot.item);
  }
  item.slot = nullptr;
  slot.item = Slot::kNoItem;
  --slot.pins;
}

// What is anchored comes in any case: once more at once where nothing went wrong, else later.
void ExpertCache::MissAsked(Slot& slot, bool cancelled) {
  if (cancelled) {
    asked_.GivenUp(slot);
    return AskForAnchored(slot.key);
  }
  asked_.Failed(slot);
  if (anchors_.Has(slot.key)) anchored_retry_.OnFailure(clock_.NowNanos());
}

// After the last read.
void ExpertCache::Finish(Slot& slot) {
  if (slot.state == RecordState::kLoading) {
    slots_.Arrive(slot);
    if (!closing_) {
      const int64_t busy_nanos = loader_.busy_nanos();
      guesses_.pace().OnRecordRead(busy_nanos);
      timing_.OnRecordRead(slot.key.precision, busy_nanos);
    }
    guesses_.Arrived(slot);
    filler_.Arrived(slot);
    asked_.Arrived(slot);
    statistics_.CountLoad(slot, store_.stored_bytes(slot.key), SecondsBetween(slot.queued_nanos, clock_.NowNanos()));
    if (device_ != nullptr && !closing_ && !turn_.waiting()) device_->RaiseIntoFreeRoom(slot);
  }
  ReleaseIfOver(slot);
}

void ExpertCache::RunCancels(const Cancels& cancels) {
  for (const Loader::Tickets& tickets : cancels) loader_.Cancel(tickets);
}

}  // namespace moed
