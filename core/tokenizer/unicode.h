// Texts of UTF-8, and the few character properties that tokenisation rests on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/utf8.h"

namespace moed {

// Offset of the first byte that is not part of a character; nullopt for valid UTF-8.
std::optional<size_t> FirstInvalidByte(std::string_view text);

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
