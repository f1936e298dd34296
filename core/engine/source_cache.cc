#include "core/engine/source_cache.h"

#include <algorithm>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/types/span.h"
#include "core/base/check.h"

namespace moed {
namespace {

uint64_t HashOf(const OwnedTokens& source) {
  const absl::Span<const TokenId> tokens(source.tokens.data(), source.tokens.size());
  return absl::HashOf(source.owner, tokens);
}

}  // namespace

SourceCache::SourceCache(KvPool& kv)
    : kv_(kv),
      page_tokens_(static_cast<size_t>(kv.page_tokens())),
      entries_(static_cast<size_t>(kv.pages())),
      tokens_(entries_.size() * page_tokens_) {
  known_.reserve(entries_.size());
}

std::optional<SourceCache::Match> SourceCache::Find(const OwnedTokens& source, Fidelity fidelity) const {
  const int32_t first = FindPage(source);
  if (first == kNone || EntryOf(first).fidelity > fidelity) return std::nullopt;
  const Entry& entry = EntryOf(first);
  return Match{first, entry.tokens, entry.fidelity, entry.dropped};
}

bool SourceCache::Take(const Match& match, KvSequence& kv) const {
  MOED_CHECK(kv.length == 0);
  std::vector<int32_t> full;
  int32_t page = match.first_page;
  for (; static_cast<int>((full.size() + 1) * page_tokens_) <= match.tokens; page = EntryOf(page).next) full.push_back(page);
  kv_.Share(kv, 0, full);
  const int rest = match.tokens - kv.length;
  if (rest == 0) return true;
  if (kv_.HoldersOf(page) == 0) {
    kv_.Adopt(kv, page, rest);
    kv_.Label(page, EntryOf(match.first_page).id);  // what the source has of it stays
    return true;
  }
  if (kv_.AdoptCopy(kv, page, rest)) return true;
  kv_.Release(kv);
  return false;
}

void SourceCache::Remember(const OwnedTokens& source, const KvSequence& kv, Fidelity fidelity, int dropped) {
  if (const int32_t same = FindPage(source); same != kNone) {
    if (EntryOf(same).fidelity <= fidelity) return;
    Erase(same);
  }
  const size_t pages = (source.tokens.size() + page_tokens_ - 1) / page_tokens_;
  for (size_t i = 0; i < pages; ++i) {  // as what they held before
    if (const int32_t before = EntryOf(kv.pages[i]).first; before != kNone) Erase(before);
  }
  const int32_t first = kv.pages.front();
  ++last_id_;
  for (size_t i = 0; i < pages; ++i) {
    const int32_t page = kv.pages[i];
    Entry& entry = entries_[static_cast<size_t>(page)];
    entry = {.first = first, .next = i + 1 < pages ? kv.pages[i + 1] : kNone};
    const auto part = source.tokens.subspan(i * page_tokens_, std::min(page_tokens_, source.tokens.size() - i * page_tokens_));
    std::ranges::copy(part, &tokens_[static_cast<size_t>(page) * page_tokens_]);
    kv_.Label(page, last_id_);
  }
  Entry& head = entries_[static_cast<size_t>(first)];
  head.hash = HashOf(source);
  head.id = last_id_;
  head.owner = source.owner;
  head.fidelity = fidelity;
  head.tokens = static_cast<int32_t>(source.tokens.size());
  head.dropped = dropped;
  known_.push_back(first);
}

int32_t SourceCache::FindPage(const OwnedTokens& source) const {
  const uint64_t hash = HashOf(source);
  const auto found =
      std::ranges::find_if(known_, [&](int32_t first) { return EntryOf(first).hash == hash && Holds(first, source); });
  return found == known_.end() ? kNone : *found;
}

bool SourceCache::Holds(int32_t first, const OwnedTokens& source) const {
  const Entry& head = EntryOf(first);
  if (head.owner != source.owner || static_cast<size_t>(head.tokens) != source.tokens.size()) return false;
  std::span<const TokenId> rest = source.tokens;
  for (int32_t page = first; page != kNone; page = EntryOf(page).next) {
    const auto part = rest.first(std::min(rest.size(), page_tokens_));
    if (kv_.LabelOf(page) != head.id) return false;
    if (!std::ranges::equal(part, std::span(tokens_).subspan(static_cast<size_t>(page) * page_tokens_, part.size())))
      return false;
    rest = rest.subspan(part.size());
  }
  return true;
}

void SourceCache::Erase(int32_t first) {
  const uint64_t id = EntryOf(first).id;
  std::erase(known_, first);
  for (int32_t page = first; page != kNone;) {
    if (kv_.LabelOf(page) == id) kv_.Unlabel(page);
    page = std::exchange(entries_[static_cast<size_t>(page)], {}).next;
  }
}

}  // namespace moed
