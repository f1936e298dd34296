#include "core/engine/checkpoints.h"

#include <algorithm>
#include <utility>

namespace moed {

Checkpoints::Checkpoints(KvPool& kv, PrefixCache& pages)
    : kv_(kv), pages_(pages), page_tokens_(static_cast<size_t>(kv.page_tokens())), entries_(static_cast<size_t>(kv.slots())) {}

bool Checkpoints::Begins(const Entry& entry, const OwnedTokens& sequence, const PrefixCache::Match& known) const {
  const size_t length = static_cast<size_t>(entry.length), full = length / page_tokens_;
  if (length > sequence.tokens.size() || full > known.pages.size()) return false;
  if (entry.chain != (full == 0 ? PrefixCache::RootOf(sequence.owner) : pages_.IdOf(known.pages[full - 1]))) return false;
  const auto rest = sequence.tokens.subspan(full * page_tokens_, length % page_tokens_);
  return std::equal(rest.begin(), rest.end(), entry.rest.begin(), entry.rest.end());
}

std::optional<Checkpoints::Match> Checkpoints::Find(const OwnedTokens& sequence, const PrefixCache::Match& known,
                                                    Fidelity fidelity, int least) {
  std::vector<Match> found;
  for (int32_t slot = 0; slot < kv_.slots(); ++slot) {
    const Entry& entry = entries_[slot];
    if (!There(slot) || entry.length <= least || entry.fidelity > fidelity || !Begins(entry, sequence, known)) continue;
    found.push_back({.slot = slot, .length = entry.length, .pages = {}, .fidelity = entry.fidelity});
  }
  std::sort(found.begin(), found.end(), [](const Match& a, const Match& b) { return a.length > b.length; });
  for (Match& match : found) {
    match.pages = pages_.Find({sequence.tokens.first(static_cast<size_t>(match.length)), sequence.owner}, fidelity);
    match.fidelity = std::max(match.fidelity, match.pages.fidelity);
    if (match.pages.length == match.length) return std::move(match);
  }
  return std::nullopt;
}

void Checkpoints::Take(const Match& match, KvSequence& kv) {
  pages_.Take(match.pages, kv);
  if (kv.length < match.length) return kv_.Release(kv);
  Entry& entry = entries_[match.slot];
  entry.used = true;
  kv_.TakeState(kv, match.slot, entry.reached, entry.left);
}

uint64_t Checkpoints::Save(const OwnedTokens& sequence, const KvSequence& kv, Fidelity fidelity) {
  std::optional<Entry> entry = Describe(sequence, kv, fidelity);
  if (!entry) return 0;
  entry->id = ++last_id_;
  const int32_t slot = kv_.SaveState(kv, entry->id);
  if (slot < 0) return 0;
  entries_[slot] = *std::move(entry);
  return last_id_;
}

void Checkpoints::Leave(const OwnedTokens& sequence, KvSequence& kv, Fidelity fidelity) {
  std::optional<Entry> entry = Describe(sequence, kv, fidelity);
  if (!entry) return;
  entry->id = ++last_id_;
  entry->left = true;
  const int32_t slot = kv_.LeaveState(kv, entry->id);
  entries_[slot] = *std::move(entry);
}

void Checkpoints::Drop(uint64_t id) {
  for (int32_t slot = 0; slot < kv_.slots(); ++slot) {
    if (entries_[slot].id == id && There(slot) && !entries_[slot].used) kv_.ForgetState(slot);
  }
}

// nullopt where it is known, or would never be found.
std::optional<Checkpoints::Entry> Checkpoints::Describe(const OwnedTokens& sequence, const KvSequence& kv, Fidelity fidelity) {
  const size_t length = static_cast<size_t>(kv.length), full = length / page_tokens_;
  const auto chain = pages_.Chain(sequence, full);
  if (kv.slot < 0 || length == 0 || !chain) return std::nullopt;
  const auto rest = sequence.tokens.subspan(full * page_tokens_, length % page_tokens_);
  Entry entry{.id = 0,
              .chain = *chain,
              .rest = {rest.begin(), rest.end()},
              .length = kv.length,
              .reached = kv.reached,
              .fidelity = fidelity};
  if (Known(entry)) return std::nullopt;
  return entry;
}

// As strict a one is there; it is used again.
bool Checkpoints::Known(const Entry& entry) {
  for (int32_t slot = 0; slot < kv_.slots(); ++slot) {
    const Entry& other = entries_[slot];
    if (!There(slot) || other.fidelity > entry.fidelity || other.chain != entry.chain || other.rest != entry.rest) continue;
    kv_.TouchState(slot);
    return true;
  }
  return false;
}

}  // namespace moed
