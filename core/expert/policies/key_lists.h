// Lists over the dense numbers of ExpertIndex, for policies that order residents (and remember who left).
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/functional/function_ref.h"
#include "core/base/check.h"

namespace moed {

// Several doubly linked lists; a key is in at most one of them. The first of a list is the one that was put there last.
class KeyLists {
 public:
  static constexpr size_t kNone = ~size_t{0};

  KeyLists(size_t keys, size_t lists) : keys_(keys), links_(keys + lists), list_(keys, kNoList), sizes_(lists) {
    MOED_CHECK(links_.size() < std::numeric_limits<uint32_t>::max() && lists < kNoList);
    for (size_t i = 0; i < links_.size(); ++i) links_[i] = {Narrow(i), Narrow(i)};
  }

  size_t size(size_t list) const { return sizes_[list]; }
  bool Listed(size_t key) const { return list_[key] != kNoList; }
  bool Has(size_t list, size_t key) const { return list_[key] == list; }

  // Out of the list it is in, if any.
  void PutFirst(size_t list, size_t key) {
    if (Listed(key)) Remove(key);
    const size_t head = keys_ + list;
    const uint32_t second = links_[head].next;
    links_[key] = {Narrow(head), second};
    links_[head].next = Narrow(key);
    links_[second].previous = Narrow(key);
    list_[key] = static_cast<uint8_t>(list);
    ++sizes_[list];
  }
  void Remove(size_t key) {
    MOED_CHECK(Listed(key));
    links_[links_[key].previous].next = links_[key].next;
    links_[links_[key].next].previous = links_[key].previous;
    --sizes_[list_[key]];
    list_[key] = kNoList;
  }

  // From the last to the first; kNone behind the first.
  size_t Last(size_t list) const { return KeyOrNone(links_[keys_ + list].previous); }
  size_t Before(size_t key) const { return KeyOrNone(links_[key].previous); }

  size_t LastOf(size_t list, absl::FunctionRef<bool(size_t)> allowed) const {
    size_t key = Last(list);
    while (key != kNone && !allowed(key)) key = Before(key);
    return key;
  }

 private:
  struct Link {
    uint32_t previous;
    uint32_t next;
  };
  static constexpr uint8_t kNoList = 0xff;

  static uint32_t Narrow(size_t i) { return static_cast<uint32_t>(i); }
  size_t KeyOrNone(uint32_t i) const { return i < keys_ ? i : kNone; }

  const size_t keys_;
  std::vector<Link> links_;  // of the keys, then of the lists: rings through their heads
  std::vector<uint8_t> list_;
  std::vector<size_t> sizes_;
};

}  // namespace moed
