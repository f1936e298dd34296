#include "core/tokenizer/piece_decoder.h"

#include "core/tokenizer/unicode.h"

namespace moed {
namespace {

std::optional<uint8_t> HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return std::nullopt;
}

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string replaced;
  size_t done = 0;
  for (size_t at; (at = text.find(from, done)) != std::string_view::npos; done = at + from.size()) {
    replaced += text.substr(done, at - done);
    replaced += to;
  }
  replaced += text.substr(done);
  return replaced;
}

}  // namespace

std::optional<uint8_t> SpelledByte(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return std::nullopt;
  const auto high = HexDigit(piece[3]), low = HexDigit(piece[4]);
  if (!high || !low) return std::nullopt;
  return static_cast<uint8_t>(*high << 4 | *low);
}

std::string DecodedPiece(const DecoderSpec& decoder, std::string_view piece, bool first) {
  std::string text =
      first && !decoder.first_piece_drops.empty() ? ReplaceAll(piece, decoder.first_piece_drops, "") : std::string(piece);
  for (const auto& [from, to] : decoder.replacements) text = ReplaceAll(text, from, to);
  return text;
}

void AppendByteRun(std::string_view run, std::string& out) {
  if (!FirstInvalidByte(run)) {
    out += run;
    return;
  }
  for (size_t i = 0; i < run.size(); ++i) out += kReplacementCharacter;
}

}  // namespace moed
