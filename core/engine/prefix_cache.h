// Which pages of the KvPool hold the keys and values of which tokens, so that a sequence may begin with what another one
// computed.
//
// A full page is known by its tokens and by the page that it follows. Whoever finds it has compared all of them, from the first
// page on: a hash leads there, and is not believed. What a page holds stays known while a sequence holds it, and after that until
// the pool gives it out again, the page that was given back longest ago first: the cache has no memory of its own beside its
// tables. A page is never used for a request that is stricter than the fidelity at which it was computed.
//
// Full pages are shared. The last page of a sequence that ended, which is not full, is known too, one behind each full page:
// whoever goes on there takes it for itself.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "core/base/fidelity.h"
#include "core/base/ids.h"
#include "core/model/kv_pool.h"

namespace moed {

// Engine thread only. The pool outlives it and has no slots.
class PrefixCache {
 public:
  explicit PrefixCache(KvPool& kv);
  // Of tables, those of the pool included, for each of its pages.
  static uint64_t BytesForPage(int page_tokens) { return static_cast<uint64_t>(page_tokens) * sizeof(TokenId) + 80; }

  struct Match {
    std::vector<int32_t> pages;  // full ones, in order
    int32_t tail = kNone;        // a page that nobody holds and that begins with tail_tokens more
    int tail_tokens = 0;
    Fidelity fidelity;  // the loosest of them
  };
  // The longest known beginning of `tokens`, at most as loose as `fidelity`.
  Match Find(std::span<const TokenId> tokens, Fidelity fidelity);
  // The full pages of `kv`, which holds `tokens`, computed at `fidelity`. Of two pages that hold the same the stricter is known,
  // or the first.
  void Remember(std::span<const TokenId> tokens, const KvSequence& kv, Fidelity fidelity);
  // The last page of `kv`, which is not written to any more, where it is not full. Before it is given back.
  void RememberTail(std::span<const TokenId> tokens, const KvSequence& kv, Fidelity fidelity);
  // Pages that hold beginnings of `tokens` and that no sequence holds.
  void Forget(std::span<const TokenId> tokens);

  uint64_t version() const { return last_id_; }  // another one: more is known

  static constexpr int32_t kNone = -1;

 private:
  struct Key {
    uint64_t parent;
    std::span<const TokenId> tokens;  // none: the page that is not full, whatever it holds
  };
  // What a page held when it was remembered last; that is there as long as the page has the label `id`.
  struct Entry {
    uint64_t id = 0;  // never used before
    uint64_t parent = kRoot;
    size_t hash = 0;
    Fidelity fidelity;
    int32_t tail_tokens = 0;  // 0: it is full
  };
  struct Hash {
    using is_transparent = void;
    const PrefixCache* cache;
    size_t operator()(int32_t page) const { return cache->EntryOf(page).hash; }
    size_t operator()(const Key& key) const;
  };
  struct Equal {
    using is_transparent = void;
    const PrefixCache* cache;
    bool operator()(int32_t a, int32_t b) const { return a == b; }
    bool operator()(int32_t page, const Key& key) const;
    bool operator()(const Key& key, int32_t page) const { return (*this)(page, key); }
  };
  static constexpr uint64_t kRoot = 0;

  const Entry& EntryOf(int32_t page) const { return entries_[static_cast<size_t>(page)]; }
  std::span<const TokenId> TokensOf(int32_t page) const {
    return std::span(tokens_).subspan(static_cast<size_t>(page) * page_tokens_, page_tokens_);
  }
  int32_t Lookup(const Key& key);
  void FindTail(uint64_t parent, std::span<const TokenId> rest, Fidelity fidelity, Match& match);
  void Insert(int32_t page, const Key& key, std::span<const TokenId> tokens, Fidelity fidelity);
  void Erase(int32_t page);

  KvPool& kv_;
  const size_t page_tokens_;
  uint64_t last_id_ = kRoot;
  std::vector<Entry> entries_;   // [page]
  std::vector<TokenId> tokens_;  // (page, page_tokens)
  absl::flat_hash_set<int32_t, Hash, Equal> known_;
};

}  // namespace moed
