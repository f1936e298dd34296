// Pieces back to text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "core/tokenizer/tokenizer_spec.h"
#include "core/tokenizer/vocabulary.h"

namespace moed {

// The byte that a piece spelled "<0xXX>" stands for.
std::optional<uint8_t> SpelledByte(std::string_view piece);

// A piece's text after the decoder's replacements; `first`: it begins the text.
std::string DecodedPiece(const DecoderSpec& decoder, std::string_view piece, bool first);

// INVALID_ARGUMENT where a piece's text would grow beyond bounds.
absl::Status CheckDecodedPieces(const DecoderSpec& decoder, const Vocabulary& vocabulary);

// Appends the text of a run of bytes that pieces spelled: as it is, or one U+FFFD for each byte where it is not UTF-8.
void AppendByteRun(std::string_view run, std::string& out);

}  // namespace moed
