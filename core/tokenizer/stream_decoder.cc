#include <utility>

#include "core/tokenizer/piece_decoder.h"
#include "core/tokenizer/tokenizer.h"
#include "core/tokenizer/tokenizer_impl.h"
#include "core/tokenizer/unicode.h"

namespace moed {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens, bool continues)
    : tokenizer_(tokenizer),
      skip_special_(skip_special_tokens),
      first_piece_(!continues),
      strips_left_(continues ? 0 : tokenizer.impl_->decoder.strip_count) {}

std::string StreamDecoder::Push(TokenId token) {
  if (skip_special_ && tokenizer_.IsSpecial(token)) return "";
  const std::string_view piece = tokenizer_.impl_->Piece(token);
  if (tokenizer_.impl_->japanese) return PushWord(token, piece);
  if (piece.empty()) return "";
  return tokenizer_.impl_->byte_level ? PushBytes(piece) : PushPiece(piece);
}

std::string StreamDecoder::PushBytes(std::string_view bytes) {
  pending_ += bytes;
  std::string text;
  pending_.erase(0, AppendReplacingInvalid(pending_, text));
  return text;
}

// A run of byte pieces is whole or wrong as a whole, so it waits for its end.
std::string StreamDecoder::PushPiece(std::string_view piece) {
  const DecoderSpec& decoder = tokenizer_.impl_->decoder;
  const std::string decoded = DecodedPiece(decoder, piece, std::exchange(first_piece_, false));
  if (const auto byte = decoder.byte_fallback ? SpelledByte(decoded) : std::nullopt) {
    pending_ += static_cast<char>(*byte);
    return "";
  }
  std::string text;
  AppendByteRun(std::exchange(pending_, {}), text);
  text += decoded;
  return Stripped(std::move(text));
}

std::string StreamDecoder::Stripped(std::string text) {
  if (text.empty()) return text;
  const std::string& strip = tokenizer_.impl_->decoder.strip;
  size_t stripped = 0;
  while (strips_left_ > 0 && stripped < text.size()) {
    const bool strips = std::string_view(text).substr(stripped).starts_with(strip);
    strips_left_ = strips ? strips_left_ - 1 : 0;
    if (strips) stripped += strip.size();
  }
  return text.substr(stripped);
}

// A run of bytes is a word. What is repeated ends it, whole or not.
std::string StreamDecoder::PushWord(TokenId token, std::string_view piece) {
  constexpr int kTimes = 3;
  const JapaneseWords& words = *tokenizer_.impl_->japanese;
  if (static_cast<uint32_t>(token.value()) != words.repeat()) {
    const bool is_byte = words.IsByte(token, piece);
    if (!is_byte || !std::exchange(last_is_bytes_, is_byte)) last_.clear();
    last_is_bytes_ = is_byte;
    last_ += piece;
    return PushBytes(piece);
  }
  std::string text = Flush(), word;
  if (AppendReplacingInvalid(last_, word) < last_.size()) word += kReplacementCharacter;
  last_ = word;
  last_is_bytes_ = false;
  for (int i = 0; i < kTimes; ++i) text += word;
  return text;
}

std::string StreamDecoder::Flush() {
  std::string text;
  if (!tokenizer_.impl_->byte_level) {
    AppendByteRun(std::exchange(pending_, {}), text);
    return Stripped(std::move(text));
  }
  if (!std::exchange(pending_, {}).empty()) text = kReplacementCharacter;
  return text;
}

}  // namespace moed
