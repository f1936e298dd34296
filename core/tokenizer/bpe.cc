#include "core/tokenizer/bpe.h"

#include <algorithm>

#include "core/base/status.h"
#include "core/tokenizer/unicode.h"

namespace moed {
namespace {

constexpr size_t kLongestCachedWord = 48;
constexpr size_t kMostCachedWords = 16384;
constexpr uint32_t kDead = kNoPiece;

}  // namespace

absl::Status Bpe::Append(std::string_view word, BpeScratch& scratch, std::vector<TokenId>& out) const {
  const std::string& boundary = options_.boundary;
  while (!boundary.empty() && !word.empty()) {
    // A cut goes before a boundary that no other boundary precedes.
    size_t cut = 0;
    while (word.substr(cut).starts_with(boundary)) cut += boundary.size();
    cut = std::min(word.find(boundary, cut), word.size());
    MOED_RETURN_IF_ERROR(AppendCached(word.substr(0, cut), scratch, out));
    word.remove_prefix(cut);
  }
  return word.empty() ? absl::OkStatus() : AppendCached(word, scratch, out);
}

absl::Status Bpe::AppendCached(std::string_view word, BpeScratch& scratch, std::vector<TokenId>& out) const {
  if (word.size() > scratch.max_word_bytes) {
    return InvalidArgument("a stretch of ", word.size(), " bytes without a place to cut; at most ", scratch.max_word_bytes,
                           " can be tokenised");
  }
  if (word.size() > kLongestCachedWord) {
    AppendMerged(word, scratch, out);
    return absl::OkStatus();
  }
  if (const auto found = scratch.cache.find(ToAbsl(word)); found != scratch.cache.end()) {
    const auto begin = scratch.cached_pieces.begin() + found->second.begin;
    out.insert(out.end(), begin, begin + found->second.count);
    return absl::OkStatus();
  }
  const size_t before = out.size();
  AppendMerged(word, scratch, out);
  if (scratch.cache.size() >= kMostCachedWords) return absl::OkStatus();
  scratch.cache.emplace(std::string(word), BpeScratch::Cached{static_cast<uint32_t>(scratch.cached_pieces.size()),
                                                              static_cast<uint32_t>(out.size() - before)});
  scratch.cached_pieces.insert(scratch.cached_pieces.end(), out.begin() + before, out.end());
  return absl::OkStatus();
}

void Bpe::AppendMerged(std::string_view word, BpeScratch& scratch, std::vector<TokenId>& out) const {
  if (options_.ignore_merges) {
    if (const auto whole = vocabulary_.Find(word)) {
      out.push_back(TokenId(static_cast<int32_t>(*whole)));
      return;
    }
  }
  StartSymbols(word, scratch);
  MergeSymbols(scratch);
  for (const BpeScratch::Symbol& symbol : scratch.symbols) {
    if (symbol.piece != kDead) out.push_back(TokenId(static_cast<int32_t>(symbol.piece)));
  }
}

bool Bpe::AddBytePieces(std::string_view character, BpeScratch& scratch) const {
  const auto piece = [&](char byte) { return options_.byte_pieces[static_cast<uint8_t>(byte)]; };
  if (!std::ranges::all_of(character, [&](char byte) { return piece(byte) != kNoPiece; })) return false;
  for (const char byte : character) scratch.symbols.push_back({piece(byte), -1, -1});
  return true;
}

// The word's characters (or bytes) as pieces. What is unknown becomes its bytes, else the unknown piece, else nothing; the
// unknown piece waits for the next known character, as the reference implementation has it.
void Bpe::StartSymbols(std::string_view word, BpeScratch& scratch) const {
  auto& symbols = scratch.symbols;
  symbols.clear();
  symbols.reserve(word.size());
  bool unknown_waits = false;
  const auto add_waiting = [&] {
    if (unknown_waits) symbols.push_back({options_.unk, -1, -1});
    unknown_waits = false;
  };
  for (size_t at = 0, bytes; at < word.size(); at += bytes) {
    bytes = options_.byte_level ? 1 : FirstCharacterBytes(word.substr(at));
    const std::string_view character = word.substr(at, bytes);
    const uint32_t piece = options_.byte_level ? options_.byte_pieces[static_cast<uint8_t>(character[0])]
                                               : vocabulary_.Find(character).value_or(kNoPiece);
    if (piece != kNoPiece) {
      add_waiting();
      symbols.push_back({piece, -1, -1});
    } else if (!(options_.byte_fallback && AddBytePieces(character, scratch)) && options_.unk != kNoPiece) {
      if (!options_.fuse_unk) add_waiting();
      unknown_waits = true;
    }
  }
  add_waiting();
  const auto count = static_cast<int32_t>(symbols.size());
  for (int32_t i = 0; i < count; ++i) {
    symbols[i].previous = i - 1;
    symbols[i].next = i + 1 < count ? i + 1 : -1;
  }
}

// Always the lowest rank, of equal ones the leftmost. The heap's entries may be stale: one counts only while the pair at its
// place still gives its result.
void Bpe::MergeSymbols(BpeScratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  const auto later = [](const BpeScratch::Candidate& a, const BpeScratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  };
  const auto candidate = [&](int32_t at) -> std::optional<BpeScratch::Candidate> {
    if (at < 0 || symbols[at].next < 0) return std::nullopt;
    const auto merge = vocabulary_.FindMerge(symbols[at].piece, symbols[symbols[at].next].piece);
    if (!merge) return std::nullopt;
    return BpeScratch::Candidate{merge->rank, at, merge->id};
  };
  const auto push = [&](int32_t at) {
    if (const auto found = candidate(at)) {
      heap.push_back(*found);
      std::ranges::push_heap(heap, later);
    }
  };

  heap.clear();
  for (size_t at = 0; at < symbols.size(); ++at) {
    if (const auto found = candidate(static_cast<int32_t>(at))) heap.push_back(*found);
  }
  std::ranges::make_heap(heap, later);
  while (!heap.empty()) {
    std::ranges::pop_heap(heap, later);
    const BpeScratch::Candidate top = heap.back();
    heap.pop_back();
    if (symbols[top.at].piece == kDead) continue;
    const auto current = candidate(top.at);
    if (!current || current->result != top.result) continue;
    BpeScratch::Symbol& left = symbols[top.at];
    BpeScratch::Symbol& right = symbols[left.next];
    left.piece = top.result;
    left.next = right.next;
    right.piece = kDead;
    if (left.next >= 0) symbols[left.next].previous = top.at;
    push(left.previous);
    push(top.at);
  }
}

}  // namespace moed
