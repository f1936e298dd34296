#include "core/base/sip_hash.h"

#include <bit>
#include <cstddef>

namespace moed {
namespace {

struct SipState {
  uint64_t a, b, c, d;

  void Rounds(int count) {
    for (int i = 0; i < count; ++i) {
      a += b, b = std::rotl(b, 13) ^ a, a = std::rotl(a, 32);
      c += d, d = std::rotl(d, 16) ^ c;
      a += d, d = std::rotl(d, 21) ^ a;
      c += b, b = std::rotl(b, 17) ^ c, c = std::rotl(c, 32);
    }
  }
  void Absorb(uint64_t word) {
    d ^= word;
    Rounds(2);
    a ^= word;
  }
};

uint64_t LittleEndian(std::string_view bytes) {  // at most eight
  uint64_t word = 0;
  for (size_t i = 0; i < bytes.size(); ++i) word |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return word;
}

}  // namespace

uint64_t SipHash(const SipKey& key, std::string_view text) {
  SipState state{key.low ^ 0x736f6d6570736575, key.high ^ 0x646f72616e646f6d, key.low ^ 0x6c7967656e657261,
                 key.high ^ 0x7465646279746573};
  const uint64_t length = uint64_t{text.size()} << 56;
  for (; text.size() >= 8; text.remove_prefix(8)) state.Absorb(LittleEndian(text.substr(0, 8)));
  state.Absorb(length | LittleEndian(text));
  state.c ^= 0xff;
  state.Rounds(4);
  return state.a ^ state.b ^ state.c ^ state.d;
}

}  // namespace moed
