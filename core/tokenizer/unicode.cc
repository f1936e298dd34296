#include "core/tokenizer/unicode.h"

#include <algorithm>
#include <cstring>

#include "core/base/utf8.h"

namespace moed {
namespace {

// The alphabet's end: the bytes that are not printable take the characters from U+0100 on.
constexpr char32_t kAlphabetEnd = 0x100 + 68;

constexpr bool IsPrintable(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

struct Alphabet {
  std::array<char32_t, 256> character_of{};
  std::array<int16_t, kAlphabetEnd> byte_of{};
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  alphabet.byte_of.fill(-1);
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t character = IsPrintable(byte) ? static_cast<char32_t>(byte) : next++;
    alphabet.character_of[byte] = character;
    alphabet.byte_of[character] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();

}  // namespace

std::optional<size_t> FirstInvalidByte(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (uint64_t word; text.size() - at >= sizeof(word)) {
      std::memcpy(&word, text.data() + at, sizeof(word));
      if ((word & 0x8080808080808080u) == 0) {
        at += sizeof(word);
        continue;
      }
    }
    const Utf8Unit unit = FirstUtf8Unit(text.substr(at));
    if (unit.kind != Utf8Unit::Kind::kCharacter) return at;
    at += unit.bytes;
  }
  return std::nullopt;
}

size_t FirstCharacterBytes(std::string_view text) {
  return std::min<size_t>(text.size(), std::max(1, LeadOf(static_cast<uint8_t>(text[0])).bytes));
}

size_t LastCharacterBytes(std::string_view text) {
  size_t bytes = 1;
  while (bytes < text.size() && IsContinuation(text[text.size() - bytes])) ++bytes;
  return bytes;
}

char32_t FirstCharacter(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  const size_t bytes = FirstCharacterBytes(text);
  if (bytes == 1) return lead;
  char32_t character = lead & (0x7F >> bytes);
  for (size_t i = 1; i < bytes; ++i) character = character << 6 | (static_cast<uint8_t>(text[i]) & 0x3F);
  return character;
}

void AppendUtf8(char32_t c, std::string& out) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    tail(0);
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

bool IsWhiteSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

char32_t ByteLevelCharacter(uint8_t byte) { return kAlphabet.character_of[byte]; }

std::optional<std::string> FromByteLevel(std::string_view spelled) {
  std::string bytes;
  for (size_t at = 0; at < spelled.size(); at += FirstCharacterBytes(spelled.substr(at))) {
    const char32_t character = FirstCharacter(spelled.substr(at));
    if (character >= kAlphabetEnd || kAlphabet.byte_of[character] < 0) return std::nullopt;
    bytes += static_cast<char>(kAlphabet.byte_of[character]);
  }
  return bytes;
}

}  // namespace moed
