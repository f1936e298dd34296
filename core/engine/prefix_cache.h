// Which pages of the KvPool hold the keys and values of which tokens, so that a sequence may begin with what another one
// computed.
//
// A page is known by its tokens and by the page that it follows, which is full: whoever finds it has compared all of them, from
// the first page on. What was computed of one owner's tokens no other owner finds. What a page holds stays known while a sequence
// holds it, and after that until the pool gives it out again, the page that was given back longest ago first: the cache has no
// memory of its own beside its tables. A page is never used for a request that is stricter than the fidelity at which it was
// computed.
//
// Full pages are shared. Of the page where a sequence parts from what is known it gets the beginning, as a copy. The last page of
// a sequence that ended, which is not full, goes to the first that goes on there.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "core/base/fidelity.h"
#include "core/base/ids.h"
#include "core/model/kv_pool.h"

namespace moed {

// Tokens of a sequence, and whose they are. 0: nobody's in particular, which all such sequences share.
struct OwnedTokens {
  std::span<const TokenId> tokens;
  uint64_t owner = 0;
};

// Engine thread only. The pool outlives it.
class PrefixCache {
 public:
  explicit PrefixCache(KvPool& kv);
  // Of tables, those of the pool included, for each of its pages.
  static uint64_t BytesForPage(int page_tokens) { return static_cast<uint64_t>(page_tokens) * sizeof(TokenId) + 80; }

  struct Match {
    std::vector<int32_t> pages;  // full ones, in order
    int32_t part = kNone;        // the next page begins with part_tokens of what follows
    int part_tokens = 0;
    int length = 0;     // of all
    Fidelity fidelity;  // the loosest of them
  };
  // The longest known beginning of `sequence`, at most as loose as `fidelity`.
  Match Find(const OwnedTokens& sequence, Fidelity fidelity);
  // The pages of `match` take the place of those of `kv` that are not full, or that the match has in place of them. The part is
  // left out when no page is free for it.
  void Take(const Match& match, KvSequence& kv);

  // The full pages of `kv`, which holds `sequence`, computed at `fidelity`. Of two pages that hold the same the stricter is
  // known, or the first.
  void Remember(const OwnedTokens& sequence, const KvSequence& kv, Fidelity fidelity);
  // The last page of `kv`, which is not written to any more, where it is not full. Before it is given back.
  void RememberTail(const OwnedTokens& sequence, const KvSequence& kv, Fidelity fidelity);
  // Pages that hold beginnings of `sequence` and that no sequence holds.
  void Forget(const OwnedTokens& sequence);

  // Pages that nobody holds, of owners 0, 1, ... `owners` - 1.
  std::vector<int> CountRemembered(size_t owners) const;
  // So many of each owner's, the one that was given back longest ago first, go before all others.
  void GoFirst(std::vector<int> surplus);

  // What stands for a full page and all before it: no other one ever does. `pages` of them, of tokens that begin with theirs.
  // Without any it stands for the owner; nullopt: they are not all known.
  std::optional<uint64_t> Chain(const OwnedTokens& sequence, size_t pages);
  uint64_t IdOf(int32_t page) const { return EntryOf(page).id; }  // of a page of a match

  uint64_t version() const { return last_id_; }  // another one: more is known

  static constexpr int32_t kNone = -1;
  // What the first page of an owner's sequences follows: no id of a page.
  static uint64_t RootOf(uint64_t owner) { return owner == 0 ? 0 : owner | uint64_t{1} << 63; }

 private:
  struct Key {
    uint64_t parent;
    std::span<const TokenId> tokens;
  };
  // What a page held when it was remembered last; that is there as long as the page has the label `id`.
  struct Entry {
    uint64_t id = 0;  // never used before
    uint64_t parent = 0;
    Fidelity fidelity;
    int32_t tokens = 0;
    uint32_t owner = 0;
  };
  // Pages that follow the same one stand beside each other, in the order of their tokens: those that begin alike are neighbours.
  struct Less {
    using is_transparent = void;
    const PrefixCache* cache;
    static bool Compare(const Key& a, const Key& b);
    bool operator()(int32_t a, int32_t b) const { return Compare(cache->KeyOf(a), cache->KeyOf(b)); }
    bool operator()(int32_t page, const Key& key) const { return Compare(cache->KeyOf(page), key); }
    bool operator()(const Key& key, int32_t page) const { return Compare(key, cache->KeyOf(page)); }
  };

  const Entry& EntryOf(int32_t page) const { return entries_[static_cast<size_t>(page)]; }
  bool Full(int32_t page) const { return EntryOf(page).tokens == static_cast<int32_t>(page_tokens_); }
  Key KeyOf(int32_t page) const {
    const Entry& entry = EntryOf(page);
    return {entry.parent, std::span(tokens_).subspan(static_cast<size_t>(page) * page_tokens_, entry.tokens)};
  }
  // What the pool has given out since is not there any more.
  bool Stale(int32_t page) const { return kv_.LabelOf(page) != EntryOf(page).id; }
  int32_t Lookup(const Key& key);
  std::pair<int32_t, int> FindPart(const Key& rest, Fidelity fidelity);
  void Insert(int32_t page, const Key& key, Fidelity fidelity, uint64_t owner);
  void Erase(int32_t page);

  KvPool& kv_;
  const size_t page_tokens_;
  uint64_t last_id_ = 0;
  std::vector<Entry> entries_;   // [page]
  std::vector<TokenId> tokens_;  // (page, page_tokens)
  absl::btree_set<int32_t, Less> known_;
};

}  // namespace moed
