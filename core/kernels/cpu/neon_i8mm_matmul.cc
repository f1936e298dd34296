// Products with quantised matrices by SMMLA: 2 rows x 8 columns times 8 columns x 2 tokens. A pair of tokens' codes is
// interleaved once for kPanelsTogether panels; a pair of rows comes from two neighbouring vectors of a block. The four lanes of a
// result are (row, token), (row, next token), (next row, token), (next row, next token); each still does what the scalar
// definition does.
#include "core/kernels/cpu/neon_formats.h"
#include "core/kernels/products.h"

namespace moed::neon {
namespace {

constexpr int kStripBlocks = 32;  // what 8 tokens need for so many stays in the first-level cache

// The activations of 2 kPairs tokens over a few blocks.
template <int kPairs>
struct Strip {
  int8x16_t codes[kStripBlocks][4][kPairs];  // eight columns of a token, then of the next
  float32x4_t scales[kStripBlocks][kPairs];  // of a token and the next, twice
  int32x4_t sums[kStripBlocks][kPairs];      // the same
  int32x4_t starts[kStripBlocks][kPairs];    // kBias times these
};

template <int kPairs>
using FourRowSums = float32x4_t[kPairs][2];

template <class Block, int kPairs>
inline void FillPair(const MatMulArguments& a, int token, int first, int count, int pair, Strip<kPairs>& strip) {
  const int64_t at = static_cast<int64_t>(token + 2 * pair) * a.blocks + first;
  const int64_t next = at + a.blocks;
  for (int b = 0; b < count; ++b) {
    for (int part = 0; part < 2; ++part) {
      const int64x2_t even = vreinterpretq_s64_s8(vld1q_s8(a.codes + (at + b) * kColumns + 16 * part));
      const int64x2_t odd = vreinterpretq_s64_s8(vld1q_s8(a.codes + (next + b) * kColumns + 16 * part));
      strip.codes[b][2 * part][pair] = vreinterpretq_s8_s64(vzip1q_s64(even, odd));
      strip.codes[b][2 * part + 1][pair] = vreinterpretq_s8_s64(vzip2q_s64(even, odd));
    }
    strip.scales[b][pair] = vzip1q_f32(vdupq_n_f32(a.scales[at + b]), vdupq_n_f32(a.scales[next + b]));
    strip.sums[b][pair] = vzip1q_s32(vdupq_n_s32(a.sums[at + b]), vdupq_n_s32(a.sums[next + b]));
    strip.starts[b][pair] = vmulq_n_s32(strip.sums[b][pair], Block::kBias);
  }
}

// Columns 8 kStep ... + 7 of rows 4 half and + 1, and of the two rows after them.
struct FourRows {
  int8x16_t pairs[2];
};
template <class Block, int kStep>
inline FourRows LoadFourRows(const unsigned char* block, int half) {
  if constexpr (Block::kThirdBits) {  // those of neighbouring groups lie at different bits: unpacked first
    const uint32x4_t left = vreinterpretq_u32_s8(LoadGroup<Block, 2 * kStep>(block, half));
    const uint32x4_t right = vreinterpretq_u32_s8(LoadGroup<Block, 2 * kStep + 1>(block, half));
    return {{vreinterpretq_s8_u32(vzip1q_u32(left, right)), vreinterpretq_s8_u32(vzip2q_u32(left, right))}};
  }
  const uint32x4_t left = vreinterpretq_u32_u8(LoadVector<Block>(block, 2 * kStep, half));
  const uint32x4_t right = vreinterpretq_u32_u8(LoadVector<Block>(block, 2 * kStep + 1, half));
  return {{Block::template Unpack<2 * kStep>(vreinterpretq_u8_u32(vzip1q_u32(left, right))),
           Block::template Unpack<2 * kStep>(vreinterpretq_u8_u32(vzip2q_u32(left, right)))}};
}

template <class Block, int kStep, int kPairs>
inline void AddStep(const unsigned char* block, int half, const int8x16_t (&codes)[4][kPairs], int32x4_t (&dot)[kPairs][2]) {
  const FourRows rows = LoadFourRows<Block, kStep>(block, half);
#pragma GCC unroll 4
  for (int pair = 0; pair < kPairs; ++pair) {
    dot[pair][0] = vmmlaq_s32(dot[pair][0], rows.pairs[0], codes[kStep][pair]);
    dot[pair][1] = vmmlaq_s32(dot[pair][1], rows.pairs[1], codes[kStep][pair]);
  }
}

// What `count` blocks add to the sums of four rows.
template <class Block, int kPairs>
inline void AddBlocks(const unsigned char* block, int half, const Strip<kPairs>& strip, int count, FourRowSums<kPairs>& sums) {
  float32x4_t sum[kPairs][2];
#pragma GCC unroll 4
  for (int pair = 0; pair < kPairs; ++pair) {
    sum[pair][0] = sums[pair][0];
    sum[pair][1] = sums[pair][1];
  }
  for (int b = 0; b < count; ++b, block += kBlockBytes<Block>) {
    int32x4_t dot[kPairs][2];
#pragma GCC unroll 4
    for (int pair = 0; pair < kPairs; ++pair) {
      dot[pair][0] = dot[pair][1] = Block::kBias == 0 ? vdupq_n_s32(0) : strip.starts[b][pair];
    }
    // In this order formats with several groups in a vector interleave it once.
    AddStep<Block, 0>(block, half, strip.codes[b], dot);
    AddStep<Block, 2>(block, half, strip.codes[b], dot);
    AddStep<Block, 1>(block, half, strip.codes[b], dot);
    AddStep<Block, 3>(block, half, strip.codes[b], dot);
    const float32x4_t scale = LoadScales<Block>(block, half);
    const float32x4_t offset = LoadOffsets<Block>(block, half);
    const float32x4_t scales[] = {vzip1q_f32(scale, scale), vzip2q_f32(scale, scale)};
    const float32x4_t offsets[] = {vzip1q_f32(offset, offset), vzip2q_f32(offset, offset)};
#pragma GCC unroll 4
    for (int pair = 0; pair < kPairs; ++pair) {
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        sum[pair][i] = Block::Add(sum[pair][i], dot[pair][i], scales[i], offsets[i], strip.scales[b][pair], strip.sums[b][pair]);
      }
    }
  }
#pragma GCC unroll 4
  for (int pair = 0; pair < kPairs; ++pair) {
    sums[pair][0] = sum[pair][0];
    sums[pair][1] = sum[pair][1];
  }
}

template <int kPairs>
inline void StoreSums(const MatMulArguments& a, int panel, int token, const FourRowSums<kPairs> (&sums)[2]) {
  const int row = panel * kRows;
  for (int pair = 0; pair < kPairs; ++pair) {
    float* out = a.output + (token + 2 * pair) * a.output_stride + row;
    const float32x4_t(&low)[2] = sums[0][pair];
    const float32x4_t(&high)[2] = sums[1][pair];
    StoreRows(out, a.rows - row, vuzp1q_f32(low[0], low[1]), vuzp1q_f32(high[0], high[1]));
    StoreRows(out + a.output_stride, a.rows - row, vuzp2q_f32(low[0], low[1]), vuzp2q_f32(high[0], high[1]));
  }
}

// Panels [begin, end), kPanelsTogether at most, times tokens [token, token + 2 kPairs).
template <class Block, int kPairs>
void RunPairs(const MatMulArguments& a, int begin, int end, int token) {
  Strip<kPairs> strip;
  FourRowSums<kPairs> sums[kPanelsTogether][2] = {};
  for (int first = 0; first < a.blocks; first += kStripBlocks) {
    const int count = a.blocks - first < kStripBlocks ? a.blocks - first : kStripBlocks;
    for (int pair = 0; pair < kPairs; ++pair) FillPair<Block>(a, token, first, count, pair, strip);
    for (int panel = begin; panel < end; ++panel) {
      const int64_t block = static_cast<int64_t>(panel) * a.blocks + first;
      const unsigned char* at = a.weights + block * kBlockBytes<Block>;
      for (int half = 0; half < 2; ++half) AddBlocks<Block>(at, half, strip, count, sums[panel - begin][half]);
    }
  }
  for (int panel = begin; panel < end; ++panel) StoreSums<kPairs>(a, panel, token, sums[panel - begin]);
}

// The last tokens, fewer than four, are few enough for SDOT.
template <FormatId kFormat>
void PairMatMul(const MatMulArguments& a, int begin, int end) {
  using Block = NeonFormat<kFormat>;
  ForPanelGroups(begin, end, [&](int first, int last) {
    int token = 0;
    for (; token + 8 <= a.tokens; token += 8) RunPairs<Block, 4>(a, first, last, token);
    if (token + 4 <= a.tokens) {
      RunPairs<Block, 2>(a, first, last, token);
      token += 4;
    }
    if (token == a.tokens) return;
    const int64_t block = static_cast<int64_t>(token) * a.blocks;
    MatMulArguments rest = a;
    rest.tokens -= token;
    rest.values += block * kColumns;
    rest.codes += block * kColumns;
    rest.scales += block;
    rest.sums += block;
    rest.output += token * a.output_stride;
    kNeonDotprodKernels.mat_mul.of[static_cast<int>(kFormat)](rest, first, last);
  });
}

struct I8mm {
  template <FormatId kFormat>
  static void MatMul(const MatMulArguments& a, int begin, int end) {
    using Format = NeonFormat<kFormat>;
    if constexpr (IsScalarRow<Format>) {
      Format::MatMul(a, begin, end);
    } else if constexpr (Format::kFloats) {
      FloatMatMul<Format>(a, begin, end);
    } else {
      PairMatMul<kFormat>(a, begin, end);
    }
  }
};

}  // namespace
}  // namespace moed::neon

namespace moed {

const KernelTable kNeonI8mmKernels = neon::Table(kProducts<neon::I8mm>);

}  // namespace moed
