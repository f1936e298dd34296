// Byte-pair encoding of one word.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "core/base/ids.h"
#include "core/tokenizer/tokenizer_spec.h"
#include "core/tokenizer/vocabulary.h"

namespace moed {

// What one Encode call keeps between its words: working space, and the results of short words.
class BpeScratch {
 public:
  // At most, for a word of so many bytes: symbols, and a heap that may hold two candidates for each while it grows.
  static constexpr size_t kBytesForByte = 48;

  explicit BpeScratch(size_t max_word_bytes) : max_word_bytes(max_word_bytes) {}

 private:
  friend class Bpe;

  // Symbols are a doubly linked list inside an array; a merged one keeps its place and its right neighbour dies.
  struct Symbol {
    uint32_t piece;
    int32_t previous, next;  // -1: none
  };
  struct Candidate {
    uint32_t rank;
    int32_t at;
    uint32_t result;
  };
  struct Cached {
    uint32_t begin, count;  // into cached_pieces
  };

  const size_t max_word_bytes;
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  absl::flat_hash_map<std::string, Cached> cache;
  std::vector<TokenId> cached_pieces;
};

// Immutable, thread-safe. The vocabulary's blob must outlive it.
class Bpe {
 public:
  Bpe(const Vocabulary& vocabulary, BpeOptions options) : vocabulary_(vocabulary), options_(std::move(options)) {}

  // O(n log n) in the length of the word. INVALID_ARGUMENT for one that is longer than the scratch allows.
  absl::Status Append(std::string_view word, BpeScratch& scratch, std::vector<TokenId>& out) const;

 private:
  absl::Status AppendCached(std::string_view word, BpeScratch& scratch, std::vector<TokenId>& out) const;
  void AppendMerged(std::string_view word, BpeScratch& scratch, std::vector<TokenId>& out) const;
  void StartSymbols(std::string_view word, BpeScratch& scratch) const;
  bool AddBytePieces(std::string_view character, BpeScratch& scratch) const;
  void MergeSymbols(BpeScratch& scratch) const;

  Vocabulary vocabulary_;
  BpeOptions options_;
};

}  // namespace moed
