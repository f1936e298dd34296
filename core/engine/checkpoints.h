// Which slots of the KvPool hold what a sequence needs beside its pages (states of recurrent layers, rings of windows) after
// which tokens, so that a sequence may go on from there. A state belongs to one position, and what comes later cannot be cut off
// it; so it is kept at some positions, the checkpoints.
//
// As with pages, a checkpoint is known by its tokens, lies in a slot that no sequence holds, and goes when the slot is given out,
// the one that was used longest ago first. It is of use as long as the pages before it are known.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/base/fidelity.h"
#include "core/base/ids.h"
#include "core/engine/prefix_cache.h"
#include "core/model/kv_pool.h"

namespace moed {

// Engine thread only. Pool and pages outlive it.
class Checkpoints {
 public:
  Checkpoints(KvPool& kv, PrefixCache& pages);
  // Of tables, those of the pool included, for each of its slots.
  static uint64_t BytesForSlot(int page_tokens) { return static_cast<uint64_t>(page_tokens) * sizeof(TokenId) + 128; }

  struct Match {
    int32_t slot = 0;
    int length = 0;
    PrefixCache::Match pages;  // up to there
    Fidelity fidelity;         // of pages and state
  };
  // The latest one of a beginning of `sequence`, after more than `least` of them. `known`: the pages of that beginning.
  std::optional<Match> Find(const OwnedTokens& sequence, const PrefixCache::Match& known, Fidelity fidelity, int least);
  // `kv` goes on from there. What it is left with may be shorter when no page is free.
  void Take(const Match& match, KvSequence& kv);

  // A copy of what `kv`, which holds `sequence` computed at `fidelity`, has now, where a slot is free. 0: there is none, or one
  // is known already; else its id.
  uint64_t Save(const OwnedTokens& sequence, const KvSequence& kv, Fidelity fidelity);
  // The slot itself, which `kv` gives back. It goes to the first that goes on there.
  void Leave(const OwnedTokens& sequence, KvSequence& kv, Fidelity fidelity);
  void Drop(uint64_t id);  // unless a sequence has begun there

  uint64_t version() const { return last_id_; }  // another one: more is known

 private:
  struct Entry {
    uint64_t id = 0;  // the slot's label; never used before
    uint64_t chain = 0;
    std::vector<TokenId> rest;  // after the chain's pages; fewer than a page
    int length = 0;
    int reached = 0;
    Fidelity fidelity;
    bool left = false;  // by a sequence that ended
    bool used = false;
  };
  bool There(int32_t slot) const { return entries_[slot].id != 0 && kv_.StateLabelOf(slot) == entries_[slot].id; }
  bool Begins(const Entry& entry, const OwnedTokens& sequence, const PrefixCache::Match& known) const;
  std::optional<Entry> Describe(const OwnedTokens& sequence, const KvSequence& kv, Fidelity fidelity);
  bool Known(const Entry& entry);

  KvPool& kv_;
  PrefixCache& pages_;
  const size_t page_tokens_;
  uint64_t last_id_ = 0;
  std::vector<Entry> entries_;  // [slot]
};

}  // namespace moed
