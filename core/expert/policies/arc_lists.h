// The lists of an adaptive replacement cache (Megiddo and Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST 2003,
// figure 4), without its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "core/expert/policies/key_lists.h"

namespace moed {

// T1 and T2 hold residents used once and at least twice since they were forgotten, B1 and B2 remember who left them. The paper's
// c, in keys, is the number of residents, at least `least_capacity`: records of several sizes share a cache.
//
// Where a use and its insertion are two events, uses count: a prefetched key enters T1 unused, its first use leaves it there, and
// it leaves no ghost if nobody used it.
class ArcLists {
 public:
  ArcLists(size_t keys, size_t least_capacity);

  void SetLeastCapacity(size_t keys) { least_capacity_ = keys; }

  void OnAccess(size_t key);
  void OnInsert(size_t key);
  void OnEvict(size_t key);
  // Who leaves for `incoming` (kNone: for a key of another cache); kNone where no resident is evictable.
  size_t Victim(size_t incoming, absl::FunctionRef<bool(size_t)> evictable) const;

  size_t residents() const { return lists_.size(kT1) + lists_.size(kT2); }

 private:
  enum List : size_t { kT1, kT2, kB1, kB2, kLists };
  struct Past {
    uint8_t uses = 0;        // since it was forgotten; 2 stands for more
    bool returning = false;  // a ghost whose use was learned from and which has not been inserted yet
  };

  size_t capacity() const;
  void LearnFromGhost(size_t key);
  void ForgetLast(List list);

  size_t least_capacity_;
  KeyLists lists_;  // each: most recently used, or evicted, first
  std::vector<Past> past_;
  double recent_target_ = 0;  // the paper's p: what T1 should hold
};

}  // namespace moed
