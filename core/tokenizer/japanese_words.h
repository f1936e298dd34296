// Words of GPTSAN-japanese (github.com/tanreinama/Japanese-BPEEncoder_V2): of up to three characters that begin here those whose
// token has the smallest id, after some texts were replaced. A token may have several words, which are one word spelled
// differently; what is no word is spelled in bytes.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/ids.h"
#include "core/tokenizer/blob.h"
#include "core/tokenizer/tokenizer_spec.h"
#include "core/tokenizer/vocabulary.h"

namespace moed {

// Immutable, thread-safe. The vocabulary's blob must outlive it.
class JapaneseWords {
 public:
  struct Replacement {
    std::string from, to;
  };
  static std::string SerializeReplacements(const std::vector<Replacement>& replacements);

  // How many tokens the vocabulary has; its words stand behind them. DATA_LOSS where `word_tokens`, the token of each word, does
  // not fit to it.
  static absl::StatusOr<size_t> CountTokens(const Vocabulary& vocabulary, std::string_view word_tokens);
  // options.byte_pieces and options.unk are tokens. After CountTokens. DATA_LOSS for replacements that are none.
  static absl::StatusOr<JapaneseWords> Make(const Vocabulary& vocabulary, std::string_view word_tokens,
                                            std::string_view replacements, const BpeOptions& options);

  // Of text without special tokens. INVALID_ARGUMENT where it has more than so many bytes; it takes 24 times as many beside it.
  absl::Status Append(std::string_view text, size_t max_bytes, std::vector<TokenId>& out) const;

  // Says what stands before it three times more.
  std::optional<uint32_t> repeat() const { return repeat_; }
  bool IsByte(TokenId token, std::string_view said) const;
  size_t longest_token_bytes() const { return longest_token_bytes_; }  // of text that gives a token
  size_t memory_bytes() const;

 private:
  JapaneseWords(const Vocabulary& vocabulary, std::string_view word_tokens, const BpeOptions& options)
      : vocabulary_(vocabulary), word_tokens_(word_tokens), options_(options) {}
  std::optional<uint32_t> Find(std::string_view word) const;
  absl::StatusOr<std::string> Replaced(std::string_view text) const;
  // The token of the word that `text` begins with, and the word's bytes.
  struct Word {
    uint32_t token = kNoPiece;
    size_t bytes = 0;
  };
  std::optional<Word> FirstWord(std::string_view text) const;
  void AppendSpelled(std::string_view character, std::vector<TokenId>& out) const;

  Vocabulary vocabulary_;
  U32Array word_tokens_;
  BpeOptions options_;
  std::vector<Replacement> replacements_;  // in this order, each everywhere
  std::optional<uint32_t> symbol_, general_symbol_, repeat_;
  size_t longest_word_ = 0;  // characters
  size_t longest_token_bytes_ = 1;
};

}  // namespace moed
