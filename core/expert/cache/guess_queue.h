// Guesses: those that are planned, those on their way, what has become of them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "core/base/ids.h"
#include "core/expert/cache/prefetch_pace.h"
#include "core/expert/cache/slot.h"
#include "core/expert/predictors/predictor.h"
#include "core/expert/stats.h"

namespace moed {

// Reads to be cancelled without the cache's lock: they report at once.
using Cancels = absl::InlinedVector<Loader::Tickets, 8>;

// Planned guesses live as long as their layer's turn; begun ones until they are wanted or gone. Layers are numbers of LayerTurn.
// Not synchronised.
class GuessQueue {
 public:
  // `pace`: that of guesses that give way.
  explicit GuessQueue(const PrefetchPace& pace) : pace_(pace) {}

  // Replaces what was planned. `how`: whether each gives way to demands, and whether it stays until its layer has come, while
  // anything else can leave.
  void Plan(std::vector<CachedKey> best_first, const PrefetchBudget& how);
  void ForgetPlanned();
  bool planned() const { return next_ < planned_.size(); }
  const CachedKey& Next() const { return planned_[next_]; }
  bool NextGivesWay() const { return give_way_; }
  void PopNext() { ++next_; }

  // A load has begun, for the layer that comes at `due_at`.
  void Begun(Slot& slot, uint64_t due_at);
  // The same of a policy's wish, which tells nothing of guesses.
  void BegunWish(Slot& slot, uint64_t due_at);
  size_t loading() const { return loading_.size(); }
  // It is read whole.
  void Arrived(const Slot& slot) { std::erase(loading_, &slot); }
  // It is wanted, or gone.
  void Forget(Slot& slot, PrefetchOutcome outcome);
  // Guessed again, or for the first time: until `due_at` it leaves only where nothing else can.
  void Keep(Slot& slot, uint64_t due_at);
  // Of those on their way. In flight they go on.
  void Cancel(absl::FunctionRef<bool(const Slot&)> which, Cancels& cancels);

  PrefetchPace& pace() { return pace_; }
  const PrefetchPace& pace() const { return pace_; }
  size_t memory_bytes() const { return planned_.capacity() * sizeof(CachedKey) + loading_.capacity() * sizeof(Slot*); }

 private:
  std::vector<CachedKey> planned_;  // best first
  size_t next_ = 0;                 // of planned_
  bool keep_ = false;               // of planned_
  bool give_way_ = false;           // likewise
  std::vector<Slot*> loading_;      // exactly those loading with unused_guess
  PrefetchPace pace_;
};

}  // namespace moed
