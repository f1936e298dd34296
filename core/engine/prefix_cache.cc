#include "core/engine/prefix_cache.h"

#include <algorithm>
#include <tuple>

#include "core/base/check.h"

namespace moed {

bool PrefixCache::Less::Compare(const Key& a, const Key& b) {
  if (a.parent != b.parent) return a.parent < b.parent;
  return std::lexicographical_compare(a.tokens.begin(), a.tokens.end(), b.tokens.begin(), b.tokens.end());
}

PrefixCache::PrefixCache(KvPool& kv)
    : kv_(kv),
      page_tokens_(static_cast<size_t>(kv.page_tokens())),
      entries_(static_cast<size_t>(kv.pages())),
      tokens_(entries_.size() * page_tokens_),
      known_(Less{this}) {}

PrefixCache::Match PrefixCache::Find(const OwnedTokens& sequence, Fidelity fidelity) {
  Match match;
  uint64_t parent = RootOf(sequence.owner);
  std::span<const TokenId> tokens = sequence.tokens;
  for (; tokens.size() >= page_tokens_; tokens = tokens.subspan(page_tokens_)) {
    const int32_t page = Lookup({parent, tokens.first(page_tokens_)});
    if (page == kNone || EntryOf(page).fidelity > fidelity) break;
    match.pages.push_back(page);
    match.fidelity = std::max(match.fidelity, EntryOf(page).fidelity);
    parent = EntryOf(page).id;
  }
  std::tie(match.part, match.part_tokens) = FindPart({parent, tokens}, fidelity);
  if (match.part != kNone) match.fidelity = std::max(match.fidelity, EntryOf(match.part).fidelity);
  match.length = static_cast<int>(match.pages.size() * page_tokens_) + match.part_tokens;
  return match;
}

// Nobody begins with more of `rest` than what stands before and after it does.
std::pair<int32_t, int> PrefixCache::FindPart(const Key& rest, Fidelity fidelity) {
  std::pair<int32_t, int> best{kNone, 0};
  const auto allowed = [&](int32_t page) { return EntryOf(page).fidelity <= fidelity; };
  const auto consider = [&](int32_t page) {
    const auto known = KeyOf(page).tokens;
    const auto end = std::mismatch(known.begin(), known.end(), rest.tokens.begin(), rest.tokens.end()).first;
    const int common = static_cast<int>(end - known.begin());
    if (common > best.second) best = {page, common};
  };
  for (auto at = known_.lower_bound(rest); at != known_.end() && EntryOf(*at).parent == rest.parent;) {
    if (Stale(*at)) {
      at = known_.erase(at);
    } else if (!allowed(*at)) {
      ++at;
    } else {
      consider(*at);
      break;
    }
  }
  for (auto at = known_.lower_bound(rest); at != known_.begin();) {
    if (EntryOf(*--at).parent != rest.parent) break;
    if (Stale(*at)) {
      at = known_.erase(at);
    } else if (allowed(*at)) {
      consider(*at);
      break;
    }
  }
  return best;
}

void PrefixCache::Take(const Match& match, KvSequence& kv) {
  const size_t own = static_cast<size_t>(kv.length) / page_tokens_;
  kv_.Share(kv, static_cast<int>(own), std::span(match.pages).subspan(own));
  if (match.part == kNone) return;
  const bool free = kv_.HoldersOf(match.part) == 0;
  if ((free && !Full(match.part)) || (!kv_.AdoptCopy(kv, match.part, match.part_tokens) && free)) {
    kv_.Adopt(kv, match.part, match.part_tokens);
  }
}

void PrefixCache::Remember(const OwnedTokens& sequence, const KvSequence& kv, Fidelity fidelity) {
  MOED_CHECK(static_cast<size_t>(kv.length) <= sequence.tokens.size());
  uint64_t parent = RootOf(sequence.owner);
  for (size_t i = 0; i < static_cast<size_t>(kv.length) / page_tokens_; ++i) {
    const Key key{parent, sequence.tokens.subspan(i * page_tokens_, page_tokens_)};
    int32_t page = Lookup(key);
    if (page == kNone || (page != kv.pages[i] && fidelity < EntryOf(page).fidelity)) {
      page = kv.pages[i];
      Insert(page, key, fidelity, sequence.owner);
    }
    parent = EntryOf(page).id;
  }
}

void PrefixCache::RememberTail(const OwnedTokens& sequence, const KvSequence& kv, Fidelity fidelity) {
  const size_t length = static_cast<size_t>(kv.length), full = length / page_tokens_;
  MOED_CHECK(length <= sequence.tokens.size());
  if (length % page_tokens_ == 0) return;
  const auto parent = Chain(sequence, full);
  if (!parent) return;
  const Key key{*parent, sequence.tokens.subspan(full * page_tokens_, length % page_tokens_)};
  if (FindPart(key, fidelity).second < static_cast<int>(key.tokens.size())) Insert(kv.pages[full], key, fidelity, sequence.owner);
}

void PrefixCache::Forget(const OwnedTokens& sequence) {
  const Match match = Find(sequence, Fidelity::Fast());
  const auto erase = [&](int32_t page) {
    if (kv_.HoldersOf(page) == 0) Erase(page);
  };
  if (match.part != kNone && match.part_tokens == EntryOf(match.part).tokens) erase(match.part);
  std::for_each(match.pages.begin(), match.pages.end(), erase);
}

std::vector<int> PrefixCache::CountRemembered(size_t owners) const {
  std::vector<int> pages(owners, 0);
  kv_.VisitRemembered([&](int32_t page) {
    if (EntryOf(page).owner < owners) ++pages[EntryOf(page).owner];
  });
  return pages;
}

void PrefixCache::GoFirst(std::vector<int> surplus) {
  std::vector<int32_t> first;
  kv_.VisitRemembered([&](int32_t page) {
    const uint32_t owner = EntryOf(page).owner;
    if (owner < surplus.size() && surplus[owner]-- > 0) first.push_back(page);
  });
  kv_.GoFirst(first);
}

std::optional<uint64_t> PrefixCache::Chain(const OwnedTokens& sequence, size_t pages) {
  uint64_t id = RootOf(sequence.owner);
  for (size_t i = 0; i < pages; ++i) {
    const int32_t page = Lookup({id, sequence.tokens.subspan(i * page_tokens_, page_tokens_)});
    if (page == kNone) return std::nullopt;
    id = EntryOf(page).id;
  }
  return id;
}

int32_t PrefixCache::Lookup(const Key& key) {
  const auto found = known_.find(key);
  if (found == known_.end()) return kNone;
  if (!Stale(*found)) return *found;
  known_.erase(found);
  return kNone;
}

void PrefixCache::Insert(int32_t page, const Key& key, Fidelity fidelity, uint64_t owner) {
  Erase(page);  // as what it held before
  if (const auto same = known_.find(key); same != known_.end()) Erase(*same);
  entries_[static_cast<size_t>(page)] = {++last_id_, key.parent, fidelity, static_cast<int32_t>(key.tokens.size()),
                                         static_cast<uint32_t>(owner)};
  std::copy(key.tokens.begin(), key.tokens.end(),
            tokens_.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(page) * page_tokens_));
  known_.insert(page);
  kv_.Label(page, last_id_);
}

void PrefixCache::Erase(int32_t page) {
  const auto found = known_.find(page);
  if (found == known_.end() || *found != page) return;
  const bool stale = Stale(page);
  known_.erase(found);
  if (!stale) kv_.Unlabel(page);
}

}  // namespace moed
