// UTF-8 one unit at a time, and the few character properties that tokenisation rests on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace moed {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// What the first bytes of a text are. Invalid: the maximal subpart that Unicode replaces by one U+FFFD.
// Incomplete: a proper prefix of a character, cut off by the end of the text.
struct Utf8Unit {
  enum class Kind : uint8_t { kCharacter, kInvalid, kIncomplete };
  Kind kind;
  uint8_t bytes;
};
Utf8Unit FirstUtf8Unit(std::string_view text);  // `text` is not empty

// Offset of the first byte that is not part of a character; nullopt for valid UTF-8.
std::optional<size_t> FirstInvalidByte(std::string_view text);

// Appends `bytes` with invalid parts replaced; stops before an incomplete end. Returns how many bytes were used.
size_t AppendReplacingInvalid(std::string_view bytes, std::string& out);

// These three want valid UTF-8.
char32_t FirstCharacter(std::string_view text);
size_t FirstCharacterBytes(std::string_view text);
size_t LastCharacterBytes(std::string_view text);

void AppendUtf8(char32_t character, std::string& out);

bool IsWhiteSpace(char32_t character);  // the White_Space property

// The alphabet in which byte-level vocabularies spell bytes: 256 printable characters, one for each byte.
char32_t ByteLevelCharacter(uint8_t byte);
// `spelled` in bytes; nullopt when one of its characters is not of the alphabet.
std::optional<std::string> FromByteLevel(std::string_view spelled);

}  // namespace moed
