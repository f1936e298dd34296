// The one cache of the process. Its parts are plain classes, each with one job, all guarded by the one lock here:
//
//   Slots (record_state.h)  which record is where and in which state       GuessQueue       what is read ahead
//   Room                    bytes for records that come, who leaves        Filler           what free room is filled with
//   LayerTurn               what the layer wants, waits for, is handed     CacheStatistics  what is counted
//   Anchors                 records that never leave                       AskedReads       what the operator asked to be read
//
// The cache coordinates them: waiting demands come before guesses for room as they do for reads, guesses before fills.
//
// Crossings of the lock by the thread that computes: two for a layer (BeginLayer, LayerRouted), whatever the number of its
// experts, where all are resident. On top come one each time that handing out or a part has to wait for a read, one for a handle
// whose pin somebody waits for, one for each guess that is cancelled, one where guesses are made anew, and one at the end of a
// layer while free room is still filled.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/clock.h"
#include "core/base/trace.h"
#include "core/expert/cache/anchors.h"
#include "core/expert/cache/asked_reads.h"
#include "core/expert/cache/cache_statistics.h"
#include "core/expert/cache/cooperation.h"
#include "core/expert/cache/counted_mutex.h"
#include "core/expert/cache/demand.h"
#include "core/expert/cache/device_tier.h"
#include "core/expert/cache/filler.h"
#include "core/expert/cache/guess_queue.h"
#include "core/expert/cache/layer_turn.h"
#include "core/expert/cache/loader.h"
#include "core/expert/cache/residency_table.h"
#include "core/expert/cache/retry_time.h"
#include "core/expert/cache/room.h"
#include "core/expert/cache/slots.h"
#include "core/expert/cache/timing_meter.h"
#include "core/expert/expert_index.h"
#include "core/expert/fidelity/rule.h"
#include "core/expert/policies/eviction_policy.h"
#include "core/expert/predictors/predictor.h"
#include "core/expert/provider.h"
#include "core/expert/stats.h"
#include "core/io/read_backend.h"
#include "core/store/store.h"

namespace moed {

struct CacheParts {
  const StoreReader& store;
  ReadBackend& reads;
  const Clock& clock;
  Allocator& allocator;
  DeviceSlots device;              // without an allocator: none
  Trace* trace;                    // may be null
  bool most_wanted_first = false;  // experts of a prompt that are not resident are read in order of the tokens that chose them
  bool whole_layers = false;       // what nobody chose of a layer is wanted too, after what was chosen
  std::vector<CachedKey> fill;     // begun at once: read into free room while nothing else is read, in this order
  size_t known = 0;                // so many at its beginning were in memory before; once read they are the policy's
  int encoder_positions = 0;       // ExpertIndex's
};

// Of an ExpertTable.
constexpr uint64_t TableOfAllBytes(uint64_t layers, uint64_t experts) {
  return RoundUp(layers * kExpertParts * experts * sizeof(const std::byte*), kPageBytes);
}

struct CacheSize {
  uint64_t capacity_bytes = 0;
  uint64_t most_bytes = 0;   // that it may become
  uint64_t least_bytes = 0;  // that are for others than what is anchored
};

// Which guesses pay, as far as reads and computation were measured until now.
struct GuessingPace {
  float least_probability = PrefetchPace::kNever;  // of a guess that is worth reading; kNever while none is
  double records_a_layer = 0;                      // that can be read in the time that a layer takes to compute
};

// Layers (BeginLayer, LayerRouted, Next, Lend) from one thread at a time; handles and everything else from any.
class ExpertCache final : Loader::Listener, SlotOwner {
 public:
  ExpertCache(const CacheParts& parts, std::unique_ptr<EvictionPolicy> policy, const CacheSize& size,
              const LoaderOptions& reading);
  // A handle that still lives is a broken invariant. Ends every read.
  ~ExpertCache();
  // Before anything else: the memory of records is taken now where a device's is part of it, and free room begins to be filled.
  // The allocators' errors.
  absl::Status Open();

  // An upper bound of table_bytes() for a store of this shape.
  static uint64_t TableBytes(const StoreDescription& store);
  // What the cache holds beside the records' bytes and the policy's own tables. Not while a layer runs.
  uint64_t table_bytes() const;

  void StartSequence(SequenceId sequence);
  void EndSequence(SequenceId sequence);
  void PauseSequence(SequenceId sequence);
  void OnToken(SequenceId sequence, TokenId token);

  // What is so now, without the lock: two answers may belong to different moments.
  const ResidencyTable& residency() const { return residency_; }

  // As ActivationLender::Lend. The end of the cache's memory: what is on its way there is waited for, all of it leaves. Here,
  // too, what is anchored and could not be read is asked for again.
  absl::StatusOr<std::span<std::byte>> Lend(uint64_t bytes);

  // As CachingProvider's.
  absl::Status Resize(uint64_t capacity_bytes);
  absl::Status Anchor(std::span<const CachedKey> keys);
  void Unanchor(std::span<const CachedKey> keys);
  void UnanchorAll();
  size_t Ask(std::span<const CachedKey> keys);
  std::vector<CachedKey> Anchored() const;

  // The layer before was handed out whole. `resolve` fills `actions` (as many as demand.experts()) and `lost` (tokens: the share
  // of its gate mass that each token loses) while nothing can change what it sees; it must not call back. Residents are pinned
  // before anything is read, loads on their way are joined, the rest waits for slots.
  using Resolve = absl::FunctionRef<void(const ResidencyView&, const TimingMeter&)>;
  GuessingPace BeginLayer(const LayerRouting& routing, const DemandSet& demand, Resolve resolve, std::span<const Action> actions,
                          std::span<const float> lost);
  // As ExpertProvider's; the lock once for each.
  ExpertTable WhereAllLie();
  void OnStep(StepWay way);
  void OnComputed(const LayerRouting& routing, const DemandSet& demand, std::span<const float> lost);
  void OnProcessorComputed(uint64_t bytes, int tokens, double seconds);
  // For a layer that was begun, its reads being under way: what the policy learns from the routing, without the lock.
  void Learn(const LayerRouting& routing) { learner_.Learn(routing); }
  // Once, after that: what was learned counts, and what is worth it of `guesses` (best first), for layers after this one, is
  // queued.
  void LayerRouted(const LayerRouting& routing, const DemandSet& demand, std::span<const Guess> guesses,
                   const PrefetchBudget& budget);
  // Afterwards, when more is known: these take the place of those guesses. Of what is on its way for the next layer no more is
  // read where it is not among them.
  void GuessAgain(std::span<const Guess> guesses, const PrefetchBudget& budget);
  // The next wanted expert whose first read has arrived, waited for if asked to. Nothing once all were handed out.
  std::optional<ReadyExpert> Next(bool wait);

  SequenceCounters sequence_counters(SequenceId sequence) const;
  ExpertStats Stats() const;
  void VisitLearned(LearnedState& state, ExpertPredictor& predictor);

 private:
  // Handles.
  absl::StatusOr<PartBytes> WaitPart(Slot& slot, ExpertPart part) override;
  bool HasPart(const Slot& slot, ExpertPart part) const override;
  void Unpin(Slot& slot) override;
  bool Arrived(const Slot& slot, ExpertPart part) const;

  // cache.cc: the layer's turn.
  void Want(const WantedExpert& wanted, const Action& action, std::span<const SequenceUse> uses, Phase phase)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountReuse(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WantRest(const DemandSet& demand) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountWanted(const CachedKey& key, LookupResult result, Phase phase, std::span<const SequenceUse> uses)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountFirstUse(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Join(Slot& slot, int item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  GuessingPace Pace() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HandOutReady(Cancels& cancels) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ReadyExpert HandOut(LayerTurn::Item& item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void PlaceForUse(const LayerTurn::Item& item, ReadyExpert& ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndLayer(bool done) ABSL_LOCKS_EXCLUDED(mutex_);
  void AwaitCounted(const absl::Condition& condition, int32_t expert) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // cache_whole.cc: steps that are computed before the cache hears of them.
  bool AllLieThere() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status FillTable() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // cache_size.cc: what the cache's size and its operator ask for.
  uint64_t MostAnchored(uint64_t capacity_bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckSize(uint64_t capacity_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AwaitAllReads() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static bool InHost(const Slot& slot) { return !slot.bytes.empty() && !slot.on_device; }
  // Of a resident one: to the lowest place that is free, an anchored one to one that is made.
  bool MoveAway(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LeaveForNewSize(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Of one that is anchored and not there; nothing of any other.
  void AskForAnchored(const CachedKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RetryAnchored() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // cache_loads.cc: loads from their beginning to their end.
  void OnRead(LoadTarget& target, int read, absl::Status outcome) override;
  void StartWaitingDemands(Cancels& cancels) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SettleMovesThatDemandsAwait(Cancels& cancels) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool StartDemand(int item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartGuesses() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool StartWish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayReadAhead() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !resizing_ && !held_ && !turn_.waiting() && slots_.loading() == 0;
  }
  bool StartGuess(const CachedKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What was asked for, then free room, as far as nothing else is read or waits to be.
  void StartIdleReads() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool StartAsked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartFill() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HandOverKnown() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Slot& StartLoad(const CachedKey& key, LoadReason reason, ReadPriority priority, std::span<std::byte> bytes, bool bypass)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Evicts until there is room, or none can be made.
  absl::StatusOr<Room::Place> MakeRoom(const Incoming& incoming) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Room::Place> MakeBypassRoom(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Room::Place> MakeAskedRoom(const CachedKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t DueAt(LayerId layer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return turn_.number() + static_cast<uint64_t>(index().Distance(index().Position(turn_.layer()), index().Position(layer)));
  }
  void KeepGuessed(std::span<const Guess> guesses, int farthest) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndGuess(Slot& slot, PrefetchOutcome outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Evict(Slot& slot, EvictionReason why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetInOrder(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReleaseIfOver(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountGivenUp(const Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fail(Slot& slot, absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MissAsked(Slot& slot, bool cancelled) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Finish(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool DemandsLeft() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return turn_.waiting() || slots_.loading() > guesses_.loading() + (filler_.reading() ? 1 : 0);
  }
  void RunCancels(const Cancels& cancels) ABSL_LOCKS_EXCLUDED(mutex_);

  const ExpertIndex& index() const { return residency_.index(); }
  bool IsLast(LayerId layer) const { return index().Position(layer) + 1 == index().layers(); }

  const StoreReader& store_;
  const Clock& clock_;
  Trace* const trace_;
  const bool most_wanted_first_;
  const bool whole_layers_;
  const uint64_t largest_record_bytes_;
  const uint64_t least_bytes_;
  ResidencyTable residency_;  // written under the lock

  mutable CountedMutex mutex_;
  const std::unique_ptr<EvictionPolicy> policy_ ABSL_PT_GUARDED_BY(mutex_);
  EvictionPolicy& learner_;  // the same, for what it does without the lock
  Slots slots_ ABSL_GUARDED_BY(mutex_);
  Filler filler_ ABSL_GUARDED_BY(mutex_);
  Anchors anchors_ ABSL_GUARDED_BY(mutex_);
  AskedReads asked_ ABSL_GUARDED_BY(mutex_);
  RetryTime anchored_retry_ ABSL_GUARDED_BY(mutex_);  // of those that could not be read
  Room room_ ABSL_GUARDED_BY(mutex_);
  const std::unique_ptr<DeviceTier> device_ ABSL_PT_GUARDED_BY(mutex_);  // null: none
  std::optional<Cooperation> cooperation_ ABSL_GUARDED_BY(mutex_);
  Allocator& table_memory_;
  Buffer table_ ABSL_GUARDED_BY(mutex_);              // ExpertTable's pointers; none before they are asked for
  uint64_t table_is_of_ ABSL_GUARDED_BY(mutex_) = 0;  // Slots::changes
  std::array<uint64_t, kStepWays> steps_ ABSL_GUARDED_BY(mutex_){};
  LayerTurn turn_ ABSL_GUARDED_BY(mutex_);
  GuessQueue guesses_ ABSL_GUARDED_BY(mutex_);
  CacheStatistics statistics_ ABSL_GUARDED_BY(mutex_);
  TimingMeter timing_ ABSL_GUARDED_BY(mutex_);
  int64_t stalled_nanos_ ABSL_GUARDED_BY(mutex_) = 0;     // all waits so far
  uint64_t given_up_bytes_ ABSL_GUARDED_BY(mutex_) = 0;   // counted of what was read of cancelled reads
  bool demands_reading_ ABSL_GUARDED_BY(mutex_) = false;  // the current layer's, until the last of them has arrived
  // Until the next layer begins, or one of them fails, what the policy wishes for is read.
  bool between_tokens_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool resizing_ ABSL_GUARDED_BY(mutex_) = false;  // nothing is read ahead
  bool held_ ABSL_GUARDED_BY(mutex_) = false;      // likewise: a step relies on where everything lies

  // Written under the lock, so that threads need not take it to see that they have nothing to do there.
  std::atomic<bool> pins_awaited_{false};  // a demand or a guess found no room: whoever drops a pin tries again
  std::atomic<bool> idle_reads_left_{false};
  std::atomic<int> handles_{0};

  // Of the thread that runs the layers alone.
  std::vector<ReadyExpert> handed_out_;  // by the turn; taken from next_ on
  size_t next_ = 0;
  size_t left_ = 0;                            // of the layer's experts, that the turn has not handed out
  std::optional<int64_t> experts_done_nanos_;  // of the layer that has ended; counted when the next one begins

  Loader loader_;  // last: its end reports to all of the above
};

}  // namespace moed
