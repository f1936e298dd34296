// The one cache of the process: which experts are in which slots, who pins them, who waits for them, who leaves.
//
// A slot goes free -> loading -> resident or failed -> free. Bytes in slots never exceed the capacity. Waiting demands come
// before guesses for room as they do for reads: no guess is started while a demand waits for a slot. While neither is read, free
// room is filled, one record at a time; what nobody has used of that counts as free room still: it leaves before anything else,
// and the policy hears of it at its first use.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/base/clock.h"
#include "core/base/trace.h"
#include "core/expert/cache/loader.h"
#include "core/expert/cache/prefetch_pace.h"
#include "core/expert/cache/slot_pool.h"
#include "core/expert/cache/timing_meter.h"
#include "core/expert/cache/wanted.h"
#include "core/expert/expert_index.h"
#include "core/expert/fidelity/rule.h"
#include "core/expert/learning/learned_state.h"
#include "core/expert/policies/eviction_policy.h"
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
  Trace* trace;                    // may be null
  bool most_wanted_first = false;  // experts of a prompt that are not resident are read in order of the tokens that chose them
  std::vector<CachedKey> fill;     // begun at once: read into free room while nothing else is read, in this order
};

// Layers (BeginLayer, Prefetch, Next) from one thread at a time; handles and everything else from any.
class ExpertCache final : Loader::Listener {
 public:
  ExpertCache(const CacheParts& parts, std::unique_ptr<EvictionPolicy> policy, uint64_t capacity_bytes,
              const LoaderOptions& reading);
  // A handle that still lives is a broken invariant. Ends every read.
  ~ExpertCache();

  // An upper bound of the tables that a store of this shape needs.
  static uint64_t TableBytes(const StoreDescription& store);

  void StartSequence(SequenceId sequence);
  void EndSequence(SequenceId sequence);
  void OnToken(SequenceId sequence, TokenId token);
  // After BeginLayer, so that learning from it delays no read.
  void OnRouted(const LayerRouting& routing);

  // Under the lock; `look` must not call back.
  void Inspect(absl::FunctionRef<void(const ResidencyView&, const TimingMeter&)> look) const;

  // As ExpertProvider::Lend. The end of the cache's memory: what is on its way there is waited for, all of it leaves.
  absl::StatusOr<std::span<std::byte>> Lend(uint64_t bytes);

  // The layer before was handed out whole. Residents are pinned before anything is read, loads on their way are joined, the rest
  // waits for slots. `actions` as many as wanted.experts(), `lost` (tokens): the share of its gate mass that each token loses.
  void BeginLayer(const LayerRouting& routing, const WantedSet& wanted, std::span<const Action> actions,
                  std::span<const float> lost);
  // Queues what is worth it of `guesses` (best first), for layers after the one that was begun.
  void Prefetch(std::span<const Guess> guesses, const PrefetchBudget& budget);
  // The least probability of a guess that is worth reading now; PrefetchPace::kNever while none is.
  float LeastGuess() const;
  // The next wanted expert whose first read has arrived, waited for if asked to. Nothing once all were handed out.
  std::optional<ReadyExpert> Next(bool wait);

  SequenceCounters sequence_counters(SequenceId sequence) const;
  ExpertStats Stats() const;
  absl::Status SaveLearned(const LearnedFile& file, ExpertPredictor& predictor);
  std::vector<ExpertHeat> Hottest(int top) const;

 private:
  enum class SlotState : uint8_t { kFree, kLoading, kResident, kFailed };
  static constexpr int kNoItem = -1;

  // One record's stay. Everything but key and bytes (constant while reads are under way) is guarded by the cache's lock.
  struct Slot final : LoadTarget, internal::PinnedExpert {
    explicit Slot(ExpertCache& owner) : cache(owner) {}
    absl::StatusOr<PartBytes> WaitPart(ExpertPart part) override { return cache.WaitPart(*this, part); }
    bool HasPart(ExpertPart part) const override { return cache.Settled(*this, part); }
    void Unpin() override { cache.Unpin(*this); }

    ExpertCache& cache;
    Loader::Tickets tickets{};
    absl::Status status;  // of a failed slot
    int64_t queued_nanos = 0;
    uint64_t wanted_at = 0;  // the last layer (by layers_begun_) that wanted it
    uint64_t due_at = 0;     // of what was guessed: when its layer comes
    int pins = 0;            // handles, and what the current layer has not handed out yet
    int item = kNoItem;      // of the current layer, waiting for the first read
    int reads_left = 0;
    uint8_t arrived = 0;  // bit per read that came and was right
    SlotState state = SlotState::kFree;
    LoadReason reason = LoadReason::kDemand;
    bool unused_guess = false;  // prefetched, and nobody wanted it yet
    bool unused_fill = false;   // filled free room, and nobody wanted it yet
    bool kept = false;          // until due_at it leaves only where nothing else can
    bool cancelling = false;
    bool bypass = false;  // not admitted: leaves with its last pin
  };

  // One wanted expert of the current layer.
  struct Item {
    CachedKey key;
    Slot* slot = nullptr;  // pinned for this item; null while it waits for a slot and when it failed
    absl::Status status;
    SequenceId sequence;      // whom the read is charged to
    uint64_t read_bytes = 0;  // of the demand read that this item caused
    int tokens = 0;           // that wanted it
  };

  enum class Admission { kAdmitted, kNotNow, kRefused };
  using Cancels = absl::InlinedVector<Loader::Tickets, 8>;  // to be cancelled without the lock: that reports at once
  struct Residents;

  // cache.cc: demands, handing out, pins.
  absl::StatusOr<PartBytes> WaitPart(Slot& slot, ExpertPart part);
  bool Settled(const Slot& slot, ExpertPart part) const;
  void Unpin(Slot& slot);
  void Want(const WantedExpert& wanted, const Action& action, std::span<const SequenceUse> uses, Phase phase)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountLosses(const LayerRouting& routing, std::span<const float> lost) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  ReadyExpert HandOut(Item& item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Join(Slot& slot, int item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropPin(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool DemandsLeft() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !waiting_.empty() || loading_ > loading_guesses_.size() + (filling_ != nullptr ? 1 : 0);
  }
  bool HasPart(const Slot& slot, ExpertPart part) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AwaitCounted(const absl::Condition& condition, int32_t expert) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  SequenceCounters& CountersOf(SequenceId sequence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // cache_loads.cc: room, eviction, the life of a load.
  void OnRead(LoadTarget& target, int read, absl::Status outcome) override;
  void StartWaitingDemands(Cancels& cancels) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartGuesses() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartFill() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetFill(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetInOrder(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Slot* LastUnusedFill(LoadReason reason, bool spare_kept) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool StartDemand(int item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Slot& StartLoad(const CachedKey& key, LoadReason reason, std::span<std::byte> room, bool bypass)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Admission> MakeRoom(const Incoming& incoming, std::span<std::byte>& room) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Admission> MakeBypassRoom(uint64_t bytes, std::span<std::byte>& room) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void KeepGuessed(std::span<const Guess> guesses) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Evictable(const Slot& slot, LoadReason reason, bool spare_kept) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Slot* Coldest() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Evict(Slot& slot, EvictionReason why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Fail(Slot& slot, absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Finish(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetGuess(Slot& slot, PrefetchOutcome outcome) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CancelGuesses(Cancels& cancels, absl::FunctionRef<bool(const Slot&)> which) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunCancels(const Cancels& cancels) ABSL_LOCKS_EXCLUDED(mutex_);
  uint32_t& ResidentCount(const CachedKey& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const StoreReader& store_;
  const Clock& clock_;
  Trace* const trace_;
  const ExpertIndex index_;
  const uint64_t largest_record_bytes_;
  const bool most_wanted_first_;

  mutable absl::Mutex mutex_;
  const std::unique_ptr<EvictionPolicy> policy_ ABSL_PT_GUARDED_BY(mutex_);
  SlotPool pool_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Slot>> slots_ ABSL_GUARDED_BY(mutex_);
  std::vector<Slot*> free_slots_ ABSL_GUARDED_BY(mutex_);
  std::vector<Slot*> by_key_ ABSL_GUARDED_BY(mutex_);           // loading or resident; null: absent
  std::vector<uint64_t> uses_ ABSL_GUARDED_BY(mutex_);          // by key: lookups
  std::vector<Slot*> loading_guesses_ ABSL_GUARDED_BY(mutex_);  // exactly those loading with unused_guess
  const std::vector<CachedKey> fill_;
  size_t fill_next_ ABSL_GUARDED_BY(mutex_) = 0;               // of fill_: each is tried once
  Slot* filling_ ABSL_GUARDED_BY(mutex_) = nullptr;            // the one loading with unused_fill
  std::vector<Slot*> unused_fills_ ABSL_GUARDED_BY(mutex_);    // exactly those with unused_fill, in order of fill_
  uint64_t bypass_reserve_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // kept from admitted records once the policy has refused one
  uint64_t bypass_bytes_ ABSL_GUARDED_BY(mutex_) = 0;          // of the reserve, in use
  int handles_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;

  PrefetchPace pace_ ABSL_GUARDED_BY(mutex_);
  TimingMeter prices_ ABSL_GUARDED_BY(mutex_);
  int64_t stalled_nanos_ ABSL_GUARDED_BY(mutex_) = 0;     // all waits so far
  size_t loading_ ABSL_GUARDED_BY(mutex_) = 0;            // slots, guesses included
  bool demands_reading_ ABSL_GUARDED_BY(mutex_) = false;  // the current layer's, until the last of them has arrived

  // The current layer.
  uint64_t layers_begun_ ABSL_GUARDED_BY(mutex_) = 0;
  LayerId layer_ ABSL_GUARDED_BY(mutex_);
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kPrefill;
  std::vector<SequenceId> sessions_ ABSL_GUARDED_BY(mutex_);
  std::vector<Item> items_ ABSL_GUARDED_BY(mutex_);
  std::deque<int> waiting_ ABSL_GUARDED_BY(mutex_);         // items without a slot
  std::deque<int> ready_ ABSL_GUARDED_BY(mutex_);           // items to hand out, in order of arrival
  size_t handed_out_ ABSL_GUARDED_BY(mutex_) = 0;           // of items_
  std::vector<CachedKey> planned_ ABSL_GUARDED_BY(mutex_);  // guesses that have not begun, best first
  PrefetchBudget budget_ ABSL_GUARDED_BY(mutex_);           // theirs

  absl::flat_hash_map<SequenceId, SequenceCounters> sequences_ ABSL_GUARDED_BY(mutex_);
  ExpertStats stats_ ABSL_GUARDED_BY(mutex_);

  Loader loader_;  // last: its end reports to all of the above
};

}  // namespace moed
