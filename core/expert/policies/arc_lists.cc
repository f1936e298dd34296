#include "core/expert/policies/arc_lists.h"

#include <algorithm>

#include "core/base/check.h"

namespace moed {

ArcLists::ArcLists(size_t keys, size_t least_capacity) : least_capacity_(least_capacity), lists_(keys, kLists), past_(keys) {}

size_t ArcLists::capacity() const { return std::max(residents(), least_capacity_); }

void ArcLists::OnAccess(size_t key) {
  Past& past = past_[key];
  const bool ghost = lists_.Has(kB1, key) || lists_.Has(kB2, key);
  if (ghost && !past.returning) LearnFromGhost(key);
  past.uses = std::min(past.uses + 1, 2);
  if (lists_.Has(kT1, key) || lists_.Has(kT2, key)) lists_.PutFirst(past.uses == 2 ? kT2 : kT1, key);
}

// Cases II and III: T1 should have been larger, or T2. The ghost goes first in its list, so that it outlives the wait for its
// room.
void ArcLists::LearnFromGhost(size_t key) {
  const auto left_recent = static_cast<double>(lists_.size(kB1));
  const auto left_frequent = static_cast<double>(lists_.size(kB2));
  if (lists_.Has(kB1, key)) {
    recent_target_ = std::min(recent_target_ + std::max(left_frequent / left_recent, 1.0), static_cast<double>(capacity()));
    lists_.PutFirst(kB1, key);
  } else {
    recent_target_ = std::max(recent_target_ - std::max(left_recent / left_frequent, 1.0), 0.0);
    lists_.PutFirst(kB2, key);
  }
  past_[key].returning = true;
}

// Case IV's bounds, kept after the insertion rather than before it: |T1| + |B1| <= c, all four <= 2 c.
void ArcLists::OnInsert(size_t key) {
  Past& past = past_[key];
  MOED_CHECK(!lists_.Has(kT1, key) && !lists_.Has(kT2, key));
  past.returning = false;
  lists_.PutFirst(past.uses == 2 ? kT2 : kT1, key);
  while (lists_.size(kB1) > 0 && lists_.size(kT1) + lists_.size(kB1) > capacity()) ForgetLast(kB1);
  while (lists_.size(kB2) > 0 && residents() + lists_.size(kB1) + lists_.size(kB2) > 2 * capacity()) ForgetLast(kB2);
}

void ArcLists::OnEvict(size_t key) {
  MOED_CHECK(lists_.Has(kT1, key) || lists_.Has(kT2, key));
  if (past_[key].uses == 0) {
    lists_.Remove(key);
  } else {
    lists_.PutFirst(lists_.Has(kT1, key) ? kB1 : kB2, key);
  }
}

void ArcLists::ForgetLast(List list) {
  const size_t key = lists_.Last(list);
  lists_.Remove(key);
  past_[key] = {};
}

// The paper's REPLACE.
size_t ArcLists::Victim(size_t incoming, absl::FunctionRef<bool(size_t)> evictable) const {
  const auto recent = static_cast<double>(lists_.size(kT1));
  const bool returns_to_frequent = incoming != KeyLists::kNone && lists_.Has(kB2, incoming);
  const bool from_recent = recent > recent_target_ || (returns_to_frequent && recent == recent_target_);
  const size_t victim = lists_.LastOf(from_recent ? kT1 : kT2, evictable);
  return victim != KeyLists::kNone ? victim : lists_.LastOf(from_recent ? kT2 : kT1, evictable);
}

}  // namespace moed
