// SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012): who does not have the key learns nothing about
// the text from its hash.
#pragma once

#include <cstdint>
#include <string_view>

namespace moed {

struct SipKey {
  uint64_t low = 0;
  uint64_t high = 0;
};

// Pure, thread-safe.
uint64_t SipHash(const SipKey& key, std::string_view text);

}  // namespace moed
