#include "core/tokenizer/piece_decoder.h"

#include <algorithm>

#include "core/base/status.h"
#include "core/tokenizer/unicode.h"

namespace moed {
namespace {

std::optional<uint8_t> HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return std::nullopt;
}

// Stops beyond `most` bytes.
std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to, size_t most) {
  std::string replaced;
  size_t done = 0;
  for (size_t at; replaced.size() <= most && (at = text.find(from, done)) != std::string_view::npos; done = at + from.size()) {
    replaced += text.substr(done, at - done);
    replaced += to;
  }
  replaced += text.substr(done);
  return replaced;
}

// Nothing where it has more than `most` bytes after a replacement.
std::optional<std::string> Decoded(const DecoderSpec& decoder, std::string_view piece, bool first, size_t most) {
  std::string text(piece);
  if (first && !decoder.first_piece_drops.empty()) text = ReplaceAll(piece, decoder.first_piece_drops, "", most);
  for (const auto& [from, to] : decoder.replacements) {
    text = ReplaceAll(text, from, to, most);
    if (text.size() > most) return std::nullopt;
  }
  return text;
}

}  // namespace

std::optional<uint8_t> SpelledByte(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return std::nullopt;
  const auto high = HexDigit(piece[3]), low = HexDigit(piece[4]);
  if (!high || !low) return std::nullopt;
  return static_cast<uint8_t>(*high << 4 | *low);
}

std::string DecodedPiece(const DecoderSpec& decoder, std::string_view piece, bool first) {
  return *Decoded(decoder, piece, first, SIZE_MAX);
}

absl::Status CheckDecodedPieces(const DecoderSpec& decoder, const Vocabulary& vocabulary) {
  constexpr size_t kMostGrowth = 4, kShortText = 1024;
  const auto grows = [](const DecoderSpec::Replacement& replacement) { return replacement.to.size() > replacement.from.size(); };
  if (std::ranges::none_of(decoder.replacements, grows)) return absl::OkStatus();
  for (uint32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string_view piece = vocabulary.piece(id);
    const size_t most = kMostGrowth * piece.size() + kShortText;
    for (const bool first : {true, false}) {
      if (Decoded(decoder, piece, first, most)) continue;
      return InvalidArgument("decoder: piece ", id, " of ", piece.size(), " bytes becomes text of more than ", most);
    }
  }
  return absl::OkStatus();
}

void AppendByteRun(std::string_view run, std::string& out) {
  if (!FirstInvalidByte(run)) {
    out += run;
    return;
  }
  for (size_t i = 0; i < run.size(); ++i) out += kReplacementCharacter;
}

}  // namespace moed
