// Integer sums of 16 rows times 16 tokens by tile instructions, scaled in vectors as they come. Internal linkage, see
// block_matmul.h.
//
// A part (of a block, see block_matmul.h) is one product of tiles. While its sums are scaled, those of the next three are being
// computed or stored: part p is in tile p % 4. With tiles in use, multiplications have one port and additions two, and of the
// three operations on a sum, the conversion alone can be had without a multiplier.
#pragma once

#include <immintrin.h>
#include <stdint.h>

#include "core/kernels/cpu/block_matmul.h"
#include "core/kernels/cpu/vectors512.h"

namespace moed {
namespace {

constexpr int kTileRows = 2 * kRows;  // of a matrix: two panels
constexpr int kTileTokens = 16;
constexpr int kFewestTileTokens = 6;  // that pay for a tile, which takes 16 in the same time
constexpr int kChunkBlocks = 16;      // of 32 columns, as many as lie in a first-level cache together
constexpr int kPartsInFlight = 4;

// Blocks of two panels: levels as vectors of four columns of 16 rows, and what the parts' sums are multiplied with.
template <int kParts>
struct alignas(64) ChunkWeights {
  int8_t levels[kChunkBlocks * kColumns * kTileRows];
  float scales[kChunkBlocks * kParts][kTileRows];
  float offsets[kChunkBlocks * kParts][kTileRows];
};
// The same blocks of 16 tokens.
template <int kParts>
struct alignas(64) ChunkInputs {
  int8_t codes[kChunkBlocks * kTileTokens * kColumns];
  float scales[kChunkBlocks][kTileTokens];
  float sums[kChunkBlocks][kTileTokens];  // of codes
};
struct alignas(64) Dots {
  int32_t of[kPartsInFlight][kTileTokens][kTileRows];
};

// What ldtilecfg reads: tiles 0 to 3 hold sums, 4 codes, 5 levels.
struct alignas(64) TileShapes {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
template <int kParts>
inline void OpenTiles() {
  constexpr int kPartColumns = kColumns / kParts;
  TileShapes shapes;
  for (int i = 0; i < kPartsInFlight; ++i) {
    shapes.row_bytes[i] = kTileRows * sizeof(int32_t);
    shapes.rows[i] = kTileTokens;
  }
  shapes.row_bytes[4] = kPartColumns;
  shapes.rows[4] = kTileTokens;
  shapes.row_bytes[5] = kTileRows * 4;
  shapes.rows[5] = kPartColumns / 4;
  asm volatile("" : : "r"(&shapes) : "memory");  // g++ takes it that the instruction reads eight bytes
  _tile_loadconfig(&shapes);
}

// Where the chunk's part p begins, of the panels and of the tokens.
template <int kParts>
struct PartPlace {
  static constexpr int kPartColumns = kColumns / kParts;
  const int8_t* levels;
  const int8_t* codes;
  inline PartPlace(const ChunkWeights<kParts>& weights, const ChunkInputs<kParts>& inputs, int p)
      : levels(weights.levels + p * kPartColumns * kTileRows),
        codes(inputs.codes + p / kParts * kTileTokens * kColumns + p % kParts * kPartColumns) {}
};

// The product of a part, begun in the tile of sums; an instruction names its tiles, so they are no arguments.
template <int kTile, int kParts>
[[gnu::always_inline]] inline void Begin(const PartPlace<kParts>& part) {
  _tile_loadd(4, part.codes, kColumns);
  _tile_loadd(5, part.levels, kTileRows * 4);
  if constexpr (kTile == 0) {
    _tile_zero(0);
    _tile_dpbssd(0, 4, 5);
  } else if constexpr (kTile == 1) {
    _tile_zero(1);
    _tile_dpbssd(1, 4, 5);
  } else if constexpr (kTile == 2) {
    _tile_zero(2);
    _tile_dpbssd(2, 4, 5);
  } else {
    _tile_zero(3);
    _tile_dpbssd(3, 4, 5);
  }
}
template <int kTile>
[[gnu::always_inline]] inline void End(Dots& dots) {
  constexpr int kRowBytes = kTileRows * sizeof(int32_t);
  if constexpr (kTile == 0) _tile_stored(0, dots.of[0], kRowBytes);
  if constexpr (kTile == 1) _tile_stored(1, dots.of[1], kRowBytes);
  if constexpr (kTile == 2) _tile_stored(2, dots.of[2], kRowBytes);
  if constexpr (kTile == 3) _tile_stored(3, dots.of[3], kRowBytes);
}

// Before the first of the tokens of these panels: part 0 stored, parts 1 and 2 begun.
template <int kParts>
inline void BeginTokens(const ChunkWeights<kParts>& weights, const ChunkInputs<kParts>& inputs, Dots& dots) {
  asm volatile("" : : "r"(&weights), "r"(&inputs) : "memory");  // g++ takes it that the loads read nothing
  Begin<0>(PartPlace<kParts>(weights, inputs, 0));
  Begin<1>(PartPlace<kParts>(weights, inputs, 1));
  End<0>(dots);
  Begin<2>(PartPlace<kParts>(weights, inputs, 2));
}

// Exact: sums of 32 products of 8-bit numbers are below 2^22, where the floats from 2^23 on are the integers.
[[gnu::always_inline]] inline __m512 ToFloatsByAdding(__m512i dots) {
  constexpr int kIntegers = 0x4b400000;  // 2^23 + 2^22, as a float
  const __m512i raised = _mm512_add_epi32(dots, _mm512_set1_epi32(kIntegers));
  return _mm512_sub_ps(_mm512_castsi512_ps(raised), _mm512_castsi512_ps(_mm512_set1_epi32(kIntegers)));
}

template <bool kOffsets, int kParts, int kTokens>
[[gnu::always_inline]] inline void AddPart(const ChunkWeights<kParts>& weights, const ChunkInputs<kParts>& inputs, int p,
                                           const int32_t (&dots)[kTileTokens][kTileRows], __m512 (&sum)[kTokens]) {
  constexpr int kConverted = 6;  // of 16 tokens by the instruction, so that the ports have the same work
  const __m512 scale = _mm512_load_ps(weights.scales[p]);
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) {
    const __m512i dot = _mm512_load_si512(dots[t]);
    const __m512 product = t * kConverted % 16 < kConverted ? _mm512_cvtepi32_ps(dot) : ToFloatsByAdding(dot);
    const __m512 x_scale = _mm512_set1_ps(inputs.scales[p / kParts][t]);
    sum[t] = _mm512_fmadd_ps(product, _mm512_mul_ps(scale, x_scale), sum[t]);
    if constexpr (kOffsets) {
      static_assert(kParts == 1);
      const __m512 offset = _mm512_mul_ps(_mm512_load_ps(weights.offsets[p]), x_scale);
      sum[t] = _mm512_fmadd_ps(_mm512_set1_ps(inputs.sums[p][t]), offset, sum[t]);
    }
  }
}

struct TileOutput {
  float* at;  // of the first row and token
  int64_t stride;
  int64_t rows;  // to write
  bool first;    // false: add to what is there
};

// Of kTokens tokens, whose inputs the next tokens' follow. Leaves the tiles as BeginTokens does, for those.
template <bool kOffsets, int kTokens, int kParts>
[[gnu::noinline]] void MultiplyChunk(const ChunkWeights<kParts>& weights, const ChunkInputs<kParts>* inputs, int blocks,
                                     Dots& dots, const TileOutput& output) {
  const int parts = blocks * kParts;
  __m512 sum[kTokens];
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) {
    sum[t] = output.first ? _mm512_setzero_ps() : Vnni512::LoadRows(output.at + t * output.stride, output.rows);
  }
#pragma GCC unroll 1
  for (int p = 0; p < parts; p += kPartsInFlight) {
    const int left = parts - p;  // parts beyond the last are multiplied, whatever is there, and not added
    const bool last = left <= kPartsInFlight;
    const ChunkInputs<kParts>& next_inputs = inputs[last ? 1 : 0];
    const int next = last ? 0 : p + kPartsInFlight;
    End<1>(dots);
    Begin<3>(PartPlace<kParts>(weights, *inputs, p + 3));
    AddPart<kOffsets>(weights, *inputs, p, dots.of[0], sum);
    End<2>(dots);
    Begin<0>(PartPlace<kParts>(weights, next_inputs, next));
    if (left > 1) AddPart<kOffsets>(weights, *inputs, p + 1, dots.of[1], sum);
    End<3>(dots);
    Begin<1>(PartPlace<kParts>(weights, next_inputs, next + 1));
    if (left > 2) AddPart<kOffsets>(weights, *inputs, p + 2, dots.of[2], sum);
    End<0>(dots);
    Begin<2>(PartPlace<kParts>(weights, next_inputs, next + 2));
    if (left > 3) AddPart<kOffsets>(weights, *inputs, p + 3, dots.of[3], sum);
  }
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) Vnni512::StoreRows(output.at + t * output.stride, output.rows, sum[t]);
}

// For a number of tokens known only at run time, kFewestTileTokens to kMost.
template <bool kOffsets, int kParts, int kMost = kTileTokens>
inline void MultiplyChunkOf(int tokens, const ChunkWeights<kParts>& weights, const ChunkInputs<kParts>* inputs, int blocks,
                            Dots& dots, const TileOutput& output) {
  if constexpr (kMost > kFewestTileTokens) {
    if (tokens < kMost) return MultiplyChunkOf<kOffsets, kParts, kMost - 1>(tokens, weights, inputs, blocks, dots, output);
  }
  MultiplyChunk<kOffsets, kMost>(weights, inputs, blocks, dots, output);
}

}  // namespace
}  // namespace moed
