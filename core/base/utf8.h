// UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing beyond U+10FFFF. Pure, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace moed {

// Length of the longest prefix that is whole, valid characters; text.size() when all of it is.
inline size_t ValidUtf8Prefix(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  size_t at = 0;
  while (at < text.size()) {
    const uint8_t lead = byte(at);
    if (lead < 0x80) {
      ++at;
      continue;
    }
    const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || at + length > text.size()) return at;
    // The second byte's range shuts out overlong forms, surrogates and what lies beyond U+10FFFF.
    const uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (byte(at + 1) < low || byte(at + 1) > high) return at;
    for (size_t i = 2; i < length; ++i) {
      if ((byte(at + i) & 0xc0) != 0x80) return at;
    }
    at += length;
  }
  return at;
}

inline bool IsValidUtf8(std::string_view text) { return ValidUtf8Prefix(text) == text.size(); }

}  // namespace moed
