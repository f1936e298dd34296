// Text to tokens and back, as the checkpoint's tokenizer.json says.
// Byte-level BPE (GPT-2, Qwen2, OLMoE pre-tokenizers), SentencePiece-style BPE with byte fallback (Llama, Mixtral),
// SentencePiece's unigram model (T5) and GPTSAN's Japanese words.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/base/byte_range.h"
#include "core/base/ids.h"

namespace moed {

struct EncodeOptions {
  bool add_special_tokens = true;  // BOS and EOS as the post-processor says
  bool parse_special_tokens =
      true;  // false: "<|endoftext|>" in the text is plain text (untrusted input); non-special added tokens still match
  std::span<const ByteRange> foreign = {};  // of the text, ascending, apart: what has a byte in them is no special token
  size_t max_tokens = SIZE_MAX;             // those of a text that gives more are not looked for to its end
  size_t max_word_bytes = SIZE_MAX;         // of what is merged as a whole, which takes EncodeScratchBytes
};

// Compiles tokenizer.json (the whole text) into the compact form that travels in the store. Unsupported parts (model type,
// normalizer, pre-tokenizer, decoder, post-processor) are errors that name the part and list what is supported. Needs a JSON DOM:
// pack time only.
absl::StatusOr<std::string> CompileTokenizer(std::string_view tokenizer_json);

// The same of vocab.txt and emoji.json, as GPTSAN-japanese has them. With special tokens a text is a whole prefix: one stands
// before it and the separator behind it.
absl::StatusOr<std::string> CompileJapaneseTokenizer(std::string_view vocab_txt, std::string_view emoji_json);

// Immutable, thread-safe. Holds the blob it was made from and little else.
class Tokenizer {
 public:
  // DATA_LOSS for a blob that is not one, whatever its bytes are.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> FromBlob(std::string blob);
  ~Tokenizer();

  // INVALID_ARGUMENT for text that is not UTF-8, naming the byte, and for a word that is too long. OUT_OF_RANGE: more tokens than
  // options.max_tokens.
  absl::StatusOr<std::vector<TokenId>> Encode(std::string_view text, const EncodeOptions& options = {}) const;
  // Bytes that are no UTF-8 become U+FFFD as Hugging Face does. INVALID_ARGUMENT for an id outside the vocabulary, and where the
  // text has more than `max_bytes`.
  absl::StatusOr<std::string> Decode(std::span<const TokenId> tokens, bool skip_special_tokens = true,
                                     size_t max_bytes = SIZE_MAX) const;
  // A longer text gives more tokens than these. SIZE_MAX where no bound is known.
  size_t MostTextBytes(size_t tokens) const;
  // At most, beside the text and its tokens, while a word of so many bytes is encoded.
  static size_t EncodeScratchBytes(size_t word_bytes);

  int vocabulary_size() const;  // highest id + 1; models may pad theirs beyond it
  bool IsSpecial(TokenId token) const;
  // The bytes that `token` adds to a text in the middle of it (a leading U+2581 is a space). Empty for an unknown id.
  std::string TokenBytes(TokenId token) const;
  size_t memory_bytes() const;  // resident, everything included

 private:
  friend class StreamDecoder;
  Tokenizer();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Token by token to text that is whole UTF-8 at every step: incomplete characters are held back. One stream, not synchronised.
class StreamDecoder {
 public:
  // `continues`: the text follows other text (a prompt), so that a leading space stays. The tokenizer must outlive it.
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens, bool continues);
  // What became whole with this token; may be empty.
  std::string Push(TokenId token);
  // What was held back at the end, invalid bytes replaced by U+FFFD.
  std::string Flush();

 private:
  std::string PushBytes(std::string_view bytes);
  std::string PushPiece(std::string_view piece);
  std::string PushWord(TokenId token, std::string_view piece);
  std::string Stripped(std::string text);

  const Tokenizer& tokenizer_;
  const bool skip_special_;
  bool first_piece_;
  std::string last_;  // of a tokenizer whose words are repeated: what the last of them said
  bool last_is_bytes_ = false;
  uint32_t strips_left_;  // how many leading characters may still go
  std::string pending_;   // an incomplete character, or a run of byte pieces whose end is not known yet
};

}  // namespace moed
