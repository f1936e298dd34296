// UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing beyond U+10FFFF. Pure, thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace moed {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

constexpr bool IsContinuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

// Of valid UTF-8.
inline size_t CountCharacters(std::string_view text) {
  return text.size() - static_cast<size_t>(std::ranges::count_if(text, IsContinuation));
}

struct Utf8Lead {
  int bytes;                        // of the whole character; 0: no character begins so
  uint8_t second_low, second_high;  // its second byte, which shuts out overlong forms, surrogates and what lies beyond U+10FFFF
};

inline Utf8Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte < 0xF0) return {3, static_cast<uint8_t>(byte == 0xE0 ? 0xA0 : 0x80), static_cast<uint8_t>(byte == 0xED ? 0x9F : 0xBF)};
  if (byte < 0xF5) return {4, static_cast<uint8_t>(byte == 0xF0 ? 0x90 : 0x80), static_cast<uint8_t>(byte == 0xF4 ? 0x8F : 0xBF)};
  return {0, 0, 0};
}

// What the first bytes of a text are. Invalid: the maximal subpart that Unicode replaces by one U+FFFD.
// Incomplete: a proper prefix of a character, cut off by the end of the text.
struct Utf8Unit {
  enum class Kind : uint8_t { kCharacter, kInvalid, kIncomplete };
  Kind kind;
  uint8_t bytes;
};

// `text` is not empty.
inline Utf8Unit FirstUtf8Unit(std::string_view text) {
  using Kind = Utf8Unit::Kind;
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const Utf8Lead lead = LeadOf(byte(0));
  if (lead.bytes == 0) return {Kind::kInvalid, 1};
  for (int i = 1; i < lead.bytes; ++i) {
    const auto length = static_cast<uint8_t>(i);
    if (text.size() <= length) return {Kind::kIncomplete, length};
    const bool fits = i == 1 ? byte(1) >= lead.second_low && byte(1) <= lead.second_high : IsContinuation(text[length]);
    if (!fits) return {Kind::kInvalid, length};
  }
  return {Kind::kCharacter, static_cast<uint8_t>(lead.bytes)};
}

// Length of the longest prefix that is whole, valid characters; text.size() when all of it is.
inline size_t ValidUtf8Prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Unit unit = FirstUtf8Unit(text.substr(at));
    if (unit.kind != Utf8Unit::Kind::kCharacter) return at;
    at += unit.bytes;
  }
  return at;
}

inline bool IsValidUtf8(std::string_view text) { return ValidUtf8Prefix(text) == text.size(); }

// Appends `bytes` with invalid parts replaced; stops before an incomplete end. Returns how many bytes were used.
inline size_t AppendReplacingInvalid(std::string_view bytes, std::string& out) {
  size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Unit unit = FirstUtf8Unit(bytes.substr(at));
    if (unit.kind == Utf8Unit::Kind::kIncomplete) break;
    out += unit.kind == Utf8Unit::Kind::kCharacter ? bytes.substr(at, unit.bytes) : kReplacementCharacter;
    at += unit.bytes;
  }
  return at;
}

}  // namespace moed
