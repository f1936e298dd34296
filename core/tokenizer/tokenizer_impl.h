// What a Tokenizer is made of; seen by tokenizer.cc and stream_decoder.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tokenizer/added_tokens.h"
#include "core/tokenizer/bpe.h"
#include "core/tokenizer/japanese_words.h"
#include "core/tokenizer/normalizer.h"
#include "core/tokenizer/pre_tokenizer.h"
#include "core/tokenizer/tokenizer.h"
#include "core/tokenizer/unigram.h"
#include "core/tokenizer/vocabulary.h"

namespace moed {

struct Tokenizer::Impl {
  absl::Status Open();  // from `blob`
  absl::Status AppendText(std::string_view text, const EncodeOptions& options, std::vector<TokenId>& out) const;
  // Where the foreign bytes of `text` are once it is `normalized`; all of it where that cannot be told.
  absl::StatusOr<std::vector<ByteRange>> ForeignOfNormalized(std::string_view text, std::span<const ByteRange> foreign,
                                                             std::string_view normalized) const;
  // Empty for an unknown id.
  std::string_view Piece(TokenId token) const {
    const bool known = token.value() >= 0 && static_cast<size_t>(token.value()) < tokens;
    return known ? vocabulary.piece(static_cast<uint32_t>(token.value())) : std::string_view();
  }

  std::string blob;  // `vocabulary` looks into it
  Vocabulary vocabulary;
  size_t tokens = 0;  // of its pieces, the first
  bool byte_level = false;
  AddedTokenMatcher raw_added, normalized_added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::optional<Bpe> bpe;
  std::optional<Unigram> unigram;         // in its place
  std::optional<JapaneseWords> japanese;  // the same
  std::vector<uint32_t> prefix_ids, suffix_ids;
  DecoderSpec decoder;
  std::vector<uint32_t> special_ids;  // ascending
  size_t longest_token_bytes = 0;     // of text that gives a token; 0: no bound is known
};

}  // namespace moed
