// Unigram segmentation of one word (Kudo, arXiv 1804.10959): the pieces whose scores have the largest sum.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "core/base/ids.h"
#include "core/tokenizer/tokenizer_spec.h"
#include "core/tokenizer/vocabulary.h"

namespace moed {

// Immutable, thread-safe. The vocabulary's blob must outlive it.
class Unigram {
 public:
  static constexpr size_t kLongestPiece = 256;  // bytes
  // Working space of one Encode call.
  class Scratch {
   public:
    static constexpr size_t kBytesForByte = 32;  // of a word, at most
    explicit Scratch(size_t max_word_bytes) : max_word_bytes(max_word_bytes) {}

   private:
    friend class Unigram;
    // The best way to the end of a character.
    struct Node {
      double score = 0;
      int32_t begin = -1;  // of its last piece; -1: none is known
      uint32_t piece = kNoPiece;
    };
    const size_t max_word_bytes;
    std::vector<Node> nodes;      // one for each byte, and one for the begin
    std::vector<int32_t> begins;  // of the best way's pieces, the last first
  };

  // DATA_LOSS unless there is a finite score for each piece, and none is longer. options.unk: the piece of unknown characters,
  // which there is.
  static absl::StatusOr<Unigram> Make(const Vocabulary& vocabulary, std::string_view scores, const BpeOptions& options);

  // O(n x the longest piece) in the length of the word. INVALID_ARGUMENT for one that is longer than the scratch allows.
  absl::Status Append(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;

 private:
  Unigram(const Vocabulary& vocabulary, std::string_view scores, const BpeOptions& options)
      : vocabulary_(vocabulary), scores_(scores), options_(options) {}
  double Score(uint32_t piece) const;
  void FindBestWay(std::string_view word, Scratch& scratch) const;
  void AppendPiece(std::string_view piece, std::vector<TokenId>& out) const;

  Vocabulary vocabulary_;
  std::string_view scores_;  // a double for each piece
  BpeOptions options_;
  size_t longest_piece_ = 0;  // bytes
  double unknown_score_ = 0;
};

}  // namespace moed
