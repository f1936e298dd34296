// Codes of pairs of columns, 5 bits for both: one of five levels and one of six. A pair is columns k and 16 + k of 32.
//   code    n + 16 h, n = 3 a + m
//   levels  the first 1 + a, 1 to 5; the second 1 + m, 1 to 3, and with h 6 - m = (1 + m) ^ 7, 6 to 4
// Quantizers do not write n = 15, whose a is 5 and m 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/quant/codec.h"
#include "core/quant/level_tables.h"

namespace moed::quant {

// 2 vectors with the n of pairs 4 s to 4 s + 3, s mod 2 the vector, in its low nibbles where s < 2; then 16 bytes: bit s of byte
// 4 r + j is the h of row r, bit 4 + s that of row 4 + r.
struct PairPlanes {
  static constexpr int kNibbles = 64;
  static constexpr int kBytes = kNibbles + 16;
  static constexpr int kPairs = 16;
  static constexpr int Nibble(int pair, int row) { return 32 * (pair / 4 % 2) + 4 * row + pair % 4; }
  static constexpr int NibbleShift(int pair) { return 4 * (pair / 8); }
  static constexpr int Bit(int pair, int row) { return kNibbles + 4 * (row % 4) + pair % 4; }
  static constexpr int BitShift(int pair, int row) { return pair / 4 + 4 * (row / 4); }

  // `levels`: of the 32 columns of one row.
  static void Put(const uint8_t* levels, int row, std::byte* planes) {
    for (int pair = 0; pair < kPairs; ++pair) {
      const int second = levels[kPairs + pair];
      const bool upper = 2 * second > kPairTurn;
      const int n = 3 * (levels[pair] - 1) + (upper ? second ^ kPairTurn : second) - 1;
      planes[Nibble(pair, row)] |= std::byte(n << NibbleShift(pair));
      planes[Bit(pair, row)] |= std::byte(upper ? 1 << BitShift(pair, row) : 0);
    }
  }
  static void Get(const std::byte* planes, int row, uint8_t* levels) {
    for (int pair = 0; pair < kPairs; ++pair) {
      const int n = Load<uint8_t>(planes + Nibble(pair, row)) >> NibbleShift(pair) & 15;
      const int upper = Load<uint8_t>(planes + Bit(pair, row)) >> BitShift(pair, row) & 1;
      levels[pair] = static_cast<uint8_t>(kPairFirst[n]);
      levels[kPairs + pair] = static_cast<uint8_t>(kPairSecond[n] ^ (upper != 0 ? kPairTurn : 0));
    }
  }
};

}  // namespace moed::quant
