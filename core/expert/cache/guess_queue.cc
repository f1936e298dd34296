#include "core/expert/cache/guess_queue.h"

#include <algorithm>
#include <utility>

namespace moed {

void GuessQueue::Plan(std::vector<CachedKey> best_first, const PrefetchBudget& how) {
  planned_ = std::move(best_first);
  next_ = 0;
  keep_ = how.keep_guessed;
  give_way_ = how.give_way;
}

void GuessQueue::ForgetPlanned() {
  planned_.clear();
  next_ = 0;
}

void GuessQueue::Begun(Slot& slot, uint64_t due_at) {
  BegunWish(slot, due_at);
  slot.wished = false;
  slot.kept = keep_;
}

void GuessQueue::BegunWish(Slot& slot, uint64_t due_at) {
  slot.unused_guess = true;
  slot.wished = true;
  slot.kept = false;
  slot.due_at = due_at;
  loading_.push_back(&slot);
}

void GuessQueue::Forget(Slot& slot, PrefetchOutcome outcome) {
  if (outcome != PrefetchOutcome::kCancelled && !slot.wished) pace_.OnOutcome(outcome != PrefetchOutcome::kWasted);
  slot.unused_guess = false;
  std::erase(loading_, &slot);
}

void GuessQueue::Keep(Slot& slot, uint64_t due_at) {
  slot.kept = true;
  slot.due_at = std::max(slot.due_at, due_at);
}

void GuessQueue::Cancel(absl::FunctionRef<bool(const Slot&)> which, Cancels& cancels) {
  for (Slot* slot : loading_) {
    if (slot->cancelling || !which(*slot)) continue;
    slot->cancelling = true;
    cancels.push_back(slot->tickets);
  }
}

}  // namespace moed
