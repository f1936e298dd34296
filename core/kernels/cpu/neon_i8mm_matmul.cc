// Products with quantised matrices by SMMLA: 2 rows x 8 columns times 8 columns x 2 tokens. A pair of tokens' codes is
// interleaved once for kPanelsTogether panels; a pair of rows comes from two neighbouring vectors of a block. The four lanes of a
// result are (row, token), (row, next token), (next row, token), (next row, next token); each still does what the scalar
// definition does.
#include "core/kernels/cpu/neon_formats.h"
#include "core/kernels/products.h"

namespace moed::neon {
namespace {

constexpr int kStripBlocks = 32;  // a multiple of a format's; what 8 tokens need for so many stays in the first-level cache

// The activations of 2 kPairs tokens over a few blocks of 32 columns, each of one part or of two.
template <int kPairs, int kParts>
struct Strip {
  int8x16_t codes[kStripBlocks][4][kPairs];        // eight columns of a token, then of the next
  float32x4_t scales[kStripBlocks][kPairs];        // of a token and the next, twice
  int32x4_t sums[kStripBlocks][kParts][kPairs];    // the same
  int32x4_t starts[kStripBlocks][kParts][kPairs];  // kBias times these
};

template <int kPairs>
using FourRowSums = float32x4_t[kPairs][2];

template <class Format, int kPairs>
inline void FillPair(const MatMulArguments& a, int token, int first, int count, int pair, Strip<kPairs, Format::kParts>& strip) {
  const int64_t at = static_cast<int64_t>(token + 2 * pair) * a.blocks + first;
  const int64_t next = at + a.blocks;
  for (int b = 0; b < count; ++b) {
    for (int half = 0; half < 2; ++half) {
      const int8x16_t even_codes = vld1q_s8(a.codes + (at + b) * kColumns + 16 * half);
      const int8x16_t odd_codes = vld1q_s8(a.codes + (next + b) * kColumns + 16 * half);
      const int64x2_t even = vreinterpretq_s64_s8(even_codes), odd = vreinterpretq_s64_s8(odd_codes);
      strip.codes[b][2 * half][pair] = vreinterpretq_s8_s64(vzip1q_s64(even, odd));
      strip.codes[b][2 * half + 1][pair] = vreinterpretq_s8_s64(vzip2q_s64(even, odd));
      if constexpr (Format::kParts == 2) {
        strip.sums[b][half][pair] = vzip1q_s32(vdupq_n_s32(vaddlvq_s8(even_codes)), vdupq_n_s32(vaddlvq_s8(odd_codes)));
      }
    }
    strip.scales[b][pair] = vzip1q_f32(vdupq_n_f32(a.scales[at + b]), vdupq_n_f32(a.scales[next + b]));
    if constexpr (Format::kParts == 1) {
      strip.sums[b][0][pair] = vzip1q_s32(vdupq_n_s32(a.sums[at + b]), vdupq_n_s32(a.sums[next + b]));
    }
    for (int part = 0; part < Format::kParts; ++part) {
      strip.starts[b][part][pair] = vmulq_n_s32(strip.sums[b][part][pair], Format::kBias);
    }
  }
}

// Columns 8 kStep ... + 7 of rows 4 half and + 1, and of the two rows after them.
struct FourRows {
  int8x16_t pairs[2];
};
template <class Codes, int kStep>
inline FourRows LoadFourRows(const unsigned char* codes, int half) {
  if constexpr (Codes::kPlain) {
    const uint32x4_t left = vreinterpretq_u32_u8(LoadVector(codes, 2 * kStep % Codes::kVectors, half));
    const uint32x4_t right = vreinterpretq_u32_u8(LoadVector(codes, (2 * kStep + 1) % Codes::kVectors, half));
    return {{Codes::template Unpack<2 * kStep>(vreinterpretq_u8_u32(vzip1q_u32(left, right))),
             Codes::template Unpack<2 * kStep>(vreinterpretq_u8_u32(vzip2q_u32(left, right)))}};
  } else {  // neighbouring groups lie at different bits: unpacked first
    const uint32x4_t left = vreinterpretq_u32_s8(Codes::template Group<2 * kStep>(codes, half));
    const uint32x4_t right = vreinterpretq_u32_s8(Codes::template Group<2 * kStep + 1>(codes, half));
    return {{vreinterpretq_s8_u32(vzip1q_u32(left, right)), vreinterpretq_s8_u32(vzip2q_u32(left, right))}};
  }
}

template <class Codes, int kStep, int kPairs>
inline void AddStep(const unsigned char* at, int half, const int8x16_t (&codes)[4][kPairs], int32x4_t (&dot)[kPairs][2]) {
  const FourRows rows = LoadFourRows<Codes, kStep>(at, half);
#pragma GCC unroll 4
  for (int pair = 0; pair < kPairs; ++pair) {
    dot[pair][0] = vmmlaq_s32(dot[pair][0], rows.pairs[0], codes[kStep][pair]);
    dot[pair][1] = vmmlaq_s32(dot[pair][1], rows.pairs[1], codes[kStep][pair]);
  }
}

// What part kPart of the 32 columns b of a block, number `at` of the strip, adds to the sums of four rows.
template <class Format, int kPart, int kPairs>
inline void AddPart(const unsigned char* block, int b, int half, const Strip<kPairs, Format::kParts>& strip, int at,
                    float32x4_t (&sum)[kPairs][2]) {
  using Codes = typename Format::Codes;
  const unsigned char* codes = Format::CodesAt(block, b);
  int32x4_t dot[kPairs][2];
#pragma GCC unroll 4
  for (int pair = 0; pair < kPairs; ++pair) {
    dot[pair][0] = dot[pair][1] = Format::kBias == 0 ? vdupq_n_s32(0) : strip.starts[at][kPart][pair];
  }
  if constexpr (Format::kParts == 2) {
    AddStep<Codes, 2 * kPart>(codes, half, strip.codes[at], dot);
    AddStep<Codes, 2 * kPart + 1>(codes, half, strip.codes[at], dot);
  } else {  // in this order formats with several groups in a vector interleave it once
    AddStep<Codes, 0>(codes, half, strip.codes[at], dot);
    AddStep<Codes, 2>(codes, half, strip.codes[at], dot);
    AddStep<Codes, 1>(codes, half, strip.codes[at], dot);
    AddStep<Codes, 3>(codes, half, strip.codes[at], dot);
  }
  const Line four = LoadLine<Format>(block, half, b, kPart);
  const Line lines[] = {{vzip1q_f32(four.scale, four.scale), vzip1q_f32(four.offset, four.offset)},
                        {vzip2q_f32(four.scale, four.scale), vzip2q_f32(four.offset, four.offset)}};
#pragma GCC unroll 4
  for (int pair = 0; pair < kPairs; ++pair) {
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      sum[pair][i] = AddDot<Format>(sum[pair][i], dot[pair][i], lines[i], strip.scales[at][pair], strip.sums[at][kPart][pair]);
    }
  }
}

// What `count` blocks of 32 columns add to the sums of four rows.
template <class Format, int kPairs>
inline void AddBlocks(const unsigned char* block, int half, const Strip<kPairs, Format::kParts>& strip, int count,
                      FourRowSums<kPairs>& sums) {
  float32x4_t sum[kPairs][2];
#pragma GCC unroll 4
  for (int pair = 0; pair < kPairs; ++pair) {
    sum[pair][0] = sums[pair][0];
    sum[pair][1] = sums[pair][1];
  }
  for (int first = 0; first < count; first += Format::kBlocks, block += Format::kBytes) {
#pragma GCC unroll 1
    for (int b = 0; b < Format::kBlocks; ++b) {
      AddPart<Format, 0>(block, b, half, strip, first + b, sum);
      if constexpr (Format::kParts == 2) AddPart<Format, 1>(block, b, half, strip, first + b, sum);
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
template <class Format, int kPairs>
void RunPairs(const MatMulArguments& a, int begin, int end, int token) {
  Strip<kPairs, Format::kParts> strip;
  FourRowSums<kPairs> sums[kPanelsTogether][2] = {};
  for (int first = 0; first < a.blocks; first += kStripBlocks) {
    const int count = a.blocks - first < kStripBlocks ? a.blocks - first : kStripBlocks;
    for (int pair = 0; pair < kPairs; ++pair) FillPair<Format>(a, token, first, count, pair, strip);
    for (int panel = begin; panel < end; ++panel) {
      const int64_t block = static_cast<int64_t>(panel) * a.blocks + first;
      const unsigned char* at = a.weights + block / Format::kBlocks * Format::kBytes;
      for (int half = 0; half < 2; ++half) AddBlocks<Format>(at, half, strip, count, sums[panel - begin][half]);
    }
  }
  for (int panel = begin; panel < end; ++panel) StoreSums<kPairs>(a, panel, token, sums[panel - begin]);
}

// The last tokens, fewer than four, are few enough for SDOT.
template <FormatId kFormat>
void PairMatMul(const MatMulArguments& a, int begin, int end) {
  using Format = NeonFormat<kFormat>;
  ForPanelGroups(begin, end, [&](int first, int last) {
    int token = 0;
    for (; token + 8 <= a.tokens; token += 8) RunPairs<Format, 4>(a, first, last, token);
    if (token + 4 <= a.tokens) {
      RunPairs<Format, 2>(a, first, last, token);
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
    if constexpr (Format::kFloats) {
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
