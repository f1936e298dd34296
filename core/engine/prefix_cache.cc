#include "core/engine/prefix_cache.h"

#include <algorithm>

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"
#include "core/base/check.h"

namespace moed {

size_t PrefixCache::Hash::operator()(const Key& key) const {
  const absl::string_view bytes(reinterpret_cast<const char*>(key.tokens.data()), key.tokens.size_bytes());
  return absl::HashOf(key.parent, bytes);
}

bool PrefixCache::Equal::operator()(int32_t page, const Key& key) const {
  const Entry& entry = cache->EntryOf(page);
  if (entry.parent != key.parent || (entry.tail_tokens > 0) != key.tokens.empty()) return false;
  const std::span<const TokenId> tokens = cache->TokensOf(page);
  return std::equal(key.tokens.begin(), key.tokens.end(), tokens.begin());
}

PrefixCache::PrefixCache(KvPool& kv)
    : kv_(kv),
      page_tokens_(static_cast<size_t>(kv.page_tokens())),
      entries_(static_cast<size_t>(kv.pages())),
      tokens_(entries_.size() * page_tokens_),
      known_(entries_.size(), Hash{this}, Equal{this}) {
  MOED_CHECK(kv.slots() == 0);
}

PrefixCache::Match PrefixCache::Find(std::span<const TokenId> tokens, Fidelity fidelity) {
  Match match;
  uint64_t parent = kRoot;
  for (; tokens.size() >= page_tokens_; tokens = tokens.subspan(page_tokens_)) {
    const int32_t page = Lookup({parent, tokens.first(page_tokens_)});
    if (page == kNone || EntryOf(page).fidelity > fidelity) break;
    match.pages.push_back(page);
    match.fidelity = std::max(match.fidelity, EntryOf(page).fidelity);
    parent = EntryOf(page).id;
  }
  FindTail(parent, tokens, fidelity, match);
  return match;
}

void PrefixCache::FindTail(uint64_t parent, std::span<const TokenId> rest, Fidelity fidelity, Match& match) {
  const int32_t page = Lookup({parent, {}});
  if (page == kNone || kv_.HoldersOf(page) > 0 || EntryOf(page).fidelity > fidelity) return;
  const auto known = TokensOf(page).first(static_cast<size_t>(EntryOf(page).tail_tokens));
  const auto common = std::mismatch(known.begin(), known.end(), rest.begin(), rest.end()).first - known.begin();
  if (common == 0) return;
  match.tail = page;
  match.tail_tokens = static_cast<int>(common);
  match.fidelity = std::max(match.fidelity, EntryOf(page).fidelity);
}

void PrefixCache::Remember(std::span<const TokenId> tokens, const KvSequence& kv, Fidelity fidelity) {
  uint64_t parent = kRoot;
  for (size_t i = 0; i < static_cast<size_t>(kv.length) / page_tokens_; ++i) {
    const Key key{parent, tokens.subspan(i * page_tokens_, page_tokens_)};
    int32_t page = Lookup(key);
    if (page == kNone || (page != kv.pages[i] && fidelity < EntryOf(page).fidelity)) {
      if (page != kNone) Erase(page);
      page = kv.pages[i];
      Insert(page, key, key.tokens, fidelity);
    }
    parent = EntryOf(page).id;
  }
}

void PrefixCache::RememberTail(std::span<const TokenId> tokens, const KvSequence& kv, Fidelity fidelity) {
  const size_t length = static_cast<size_t>(kv.length), full = length / page_tokens_;
  if (length % page_tokens_ == 0) return;
  uint64_t parent = kRoot;
  for (size_t i = 0; i < full; ++i) {
    const int32_t page = Lookup({parent, tokens.subspan(i * page_tokens_, page_tokens_)});
    if (page == kNone) return;
    parent = EntryOf(page).id;
  }
  if (const int32_t before = Lookup({parent, {}}); before != kNone) Erase(before);
  Insert(kv.pages[full], {parent, {}}, tokens.subspan(full * page_tokens_, length % page_tokens_), fidelity);
}

void PrefixCache::Forget(std::span<const TokenId> tokens) {
  const Match match = Find(tokens, Fidelity::Fast());
  if (match.tail != kNone) Erase(match.tail);
  for (const int32_t page : match.pages) {
    if (kv_.HoldersOf(page) == 0) Erase(page);
  }
}

// What the pool has given out since is not there any more.
int32_t PrefixCache::Lookup(const Key& key) {
  const auto found = known_.find(key);
  if (found == known_.end()) return kNone;
  const int32_t page = *found;
  if (kv_.LabelOf(page) == EntryOf(page).id) return page;
  known_.erase(found);
  return kNone;
}

void PrefixCache::Insert(int32_t page, const Key& key, std::span<const TokenId> tokens, Fidelity fidelity) {
  known_.erase(page);  // as what it held before
  Entry& entry = entries_[static_cast<size_t>(page)];
  entry = {++last_id_, key.parent, Hash{this}(key), fidelity, key.tokens.empty() ? static_cast<int32_t>(tokens.size()) : 0};
  std::copy(tokens.begin(), tokens.end(),
            tokens_.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(page) * page_tokens_));
  known_.insert(page);
  kv_.Label(page, entry.id);
}

void PrefixCache::Erase(int32_t page) {
  known_.erase(page);
  kv_.Unlabel(page);
}

}  // namespace moed
