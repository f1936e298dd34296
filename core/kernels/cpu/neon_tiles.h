// How a product is cut into tiles of panels times tokens. Everything here stays within the file that includes it (unnamed
// namespace), since those are compiled for different instruction sets.
#pragma once

#include <arm_neon.h>

#include "core/kernels/cpu/neon.h"

namespace moed::neon {
namespace {

constexpr int kRows = 8;
constexpr int kColumns = 32;
constexpr int kPanelsTogether = 4;  // share a tile's activations while those are in the first-level cache

inline float32x4_t LoadHalves(const unsigned char* at) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(at))); }
// A byte of each of four rows.
inline uint32x4_t LoadBytes(const unsigned char* at, int half) {
  uint32_t bytes;
  __builtin_memcpy(&bytes, at + 4 * half, 4);
  return vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(bytes))));
}

// Rows of the panel that the matrix has, to one token's output.
inline void StoreRows(float* out, int rows, float32x4_t low, float32x4_t high) {
  if (rows >= kRows) {
    vst1q_f32(out, low);
    vst1q_f32(out + 4, high);
    return;
  }
  float sums[kRows];
  vst1q_f32(sums, low);
  vst1q_f32(sums + 4, high);
  for (int r = 0; r < rows; ++r) out[r] = sums[r];
}

// The sums of a tile, in halves of a panel's rows.
template <int kPanels, int kTokens>
inline void StoreTile(const MatMulArguments& a, int panel, int token, const float32x4_t (&sum)[kPanels][2][kTokens]) {
#pragma GCC unroll 4
  for (int p = 0; p < kPanels; ++p) {
    const int row = (panel + p) * kRows;
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      StoreRows(a.output + (token + t) * a.output_stride + row, a.rows - row, sum[p][0][t], sum[p][1][t]);
    }
  }
}

// Tile::Run<kPanels, kTokens>(a, panel, token) over all tokens and the panels [begin, end), kPanelsTogether of them or fewer.
// Few tokens take several panels at once: eight independent sums hide what an addition takes.
template <class Tile>
inline void RunTiles(const MatMulArguments& a, int begin, int end) {
  const bool all = end - begin == kPanelsTogether;
  int token = 0;
  for (; token + 4 <= a.tokens; token += 4) {
    for (int panel = begin; panel < end; ++panel) Tile::template Run<1, 4>(a, panel, token);
  }
  if (token + 2 <= a.tokens) {
    for (int panel = begin; all && panel < end; panel += 2) Tile::template Run<2, 2>(a, panel, token);
    for (int panel = begin; !all && panel < end; ++panel) Tile::template Run<1, 2>(a, panel, token);
    token += 2;
  }
  if (token < a.tokens) {
    if (all) Tile::template Run<4, 1>(a, begin, token);
    for (int panel = begin; !all && panel < end; ++panel) Tile::template Run<1, 1>(a, panel, token);
  }
}

// body(first, last) for the panels [begin, end), kPanelsTogether at a time.
template <class Body>
inline void ForPanelGroups(int begin, int end, const Body& body) {
  for (; begin < end; begin += kPanelsTogether) body(begin, end - begin < kPanelsTogether ? end : begin + kPanelsTogether);
}

}  // namespace
}  // namespace moed::neon
