// Which pages of the KvPool hold what was computed of which source, so that requests with equal sources compute it once. A source
// is what is computed as a whole: that of an encoder-decoder, or the prefix of a prefix-LM.
//
// What a position of a source holds depends on all of the source. So it is found whole or not at all: whoever finds it has
// compared all of its tokens. One owner's sources no other owner finds. As in the PrefixCache (prefix_cache.h), pages stay known
// until the pool gives one of them out again, the cache has no memory beside its tables, and nothing is used for a request that
// is stricter than the fidelity at which it was computed.
//
// Full pages are shared. In the page where a source ends its sequence goes on: another one gets a copy of it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/fidelity.h"
#include "core/base/ids.h"
#include "core/engine/prefix_cache.h"
#include "core/model/kv_pool.h"

namespace moed {

// Engine thread only. The pool outlives it.
class SourceCache {
 public:
  explicit SourceCache(KvPool& kv);
  // Of tables, those of the pool included, for each of its pages.
  static uint64_t BytesForPage(int page_tokens) { return PrefixCache::BytesForPage(page_tokens); }

  struct Match {
    int32_t first_page;
    int tokens;
    Fidelity fidelity;
    int dropped;  // choices of its tokens that an expert was full for
  };
  std::optional<Match> Find(const OwnedTokens& source, Fidelity fidelity) const;
  // The source takes the place of what `kv` holds, of which nothing is computed. False, and `kv` holds nothing: no page is free
  // for the copy.
  bool Take(const Match& match, KvSequence& kv) const;
  // `kv` begins with `source`. Of two that are the same the stricter is known, or the first.
  void Remember(const OwnedTokens& source, const KvSequence& kv, Fidelity fidelity, int dropped);

  uint64_t version() const { return last_id_; }  // another one: more is known

 private:
  static constexpr int32_t kNone = -1;
  // A page, and where it is a source's first one the source. It is there as long as all of its pages have the label `id`.
  struct Entry {
    uint64_t hash = 0;
    uint64_t id = 0;  // never used before
    uint64_t owner = 0;
    Fidelity fidelity;
    int32_t tokens = 0;
    int32_t dropped = 0;
    int32_t first = kNone;  // of the source that the page was last part of
    int32_t next = kNone;
  };

  const Entry& EntryOf(int32_t page) const { return entries_[static_cast<size_t>(page)]; }
  int32_t FindPage(const OwnedTokens& source) const;
  bool Holds(int32_t first, const OwnedTokens& source) const;
  void Erase(int32_t first);

  KvPool& kv_;
  const size_t page_tokens_;
  uint64_t last_id_ = 0;
  std::vector<Entry> entries_;   // [page]
  std::vector<TokenId> tokens_;  // (page, page_tokens)
  std::vector<int32_t> known_;   // first pages
};

}  // namespace moed
