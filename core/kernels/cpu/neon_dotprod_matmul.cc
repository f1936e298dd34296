// Products with quantised matrices by SDOT: lane r of a panel's two vectors is row r, and one register of activations serves
// four groups of columns, lane by lane.
#include "core/kernels/cpu/neon_formats.h"
#include "core/kernels/products.h"

namespace moed::neon {
namespace {

template <class Format>
struct DotTile {
  template <int kTokens>
  struct Input {
    const int8_t* codes;  // of the first token; the next ones' follow by `width` and `blocks`
    const float* scales;
    const int32_t* sums;
    int64_t width;
    int64_t blocks;
    template <int kHalf>
    inline void LoadCodes(int8x16_t (&x)[kTokens]) const {
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) x[t] = vld1q_s8(codes + t * width + 16 * kHalf);
    }
  };

  // Group kGroup of kPanels panels times its activations, and the groups after it up to the end of `codes`, which holds four.
  template <int kGroup, int kPanels, int kTokens>
  static inline void AddGroups(const unsigned char* block, int64_t panel_bytes, int b, const int8x16_t (&codes)[kTokens],
                               int32x4_t (&dot)[kPanels][2][kTokens]) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const int8x16_t w = Format::Codes::template Group<kGroup>(Format::CodesAt(block + p * panel_bytes, b), half);
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) dot[p][half][t] = vdotq_laneq_s32(dot[p][half][t], w, codes[t], kGroup % 4);
      }
    }
    if constexpr (kGroup % 4 < 3) AddGroups<kGroup + 1>(block, panel_bytes, b, codes, dot);
  }

  // What part kPart of the 32 columns b of a block adds.
  template <int kPart, int kPanels, int kTokens>
  static inline void AddPart(const unsigned char* block, int64_t panel_bytes, int b, const Input<kTokens>& input,
                             float32x4_t (&sum)[kPanels][2][kTokens]) {
    int8x16_t x[kTokens];
    input.template LoadCodes<kPart>(x);
    int32x4_t x_sum[kTokens];
    int32x4_t dot[kPanels][2][kTokens];
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      x_sum[t] = vdupq_n_s32(Format::kParts == 2 ? vaddlvq_s8(x[t]) : input.sums[t * input.blocks]);
      const int32x4_t start = vmulq_n_s32(x_sum[t], Format::kBias);
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) dot[p][0][t] = dot[p][1][t] = start;
    }
    AddGroups<4 * kPart>(block, panel_bytes, b, x, dot);
    if constexpr (Format::kParts == 1) {
      input.template LoadCodes<1>(x);
      AddGroups<4>(block, panel_bytes, b, x, dot);
    }
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const Line line = LoadLine<Format>(block + p * panel_bytes, half, b, kPart);
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) {
          const float32x4_t x_scale = vdupq_n_f32(input.scales[t * input.blocks]);
          sum[p][half][t] = AddDot<Format>(sum[p][half][t], dot[p][half][t], line, x_scale, x_sum[t]);
        }
      }
    }
  }

  template <int kPanels, int kTokens>
  static inline void Run(const MatMulArguments& a, int panel, int token) {
    const int64_t width = static_cast<int64_t>(a.blocks) * kColumns;
    const int64_t panel_bytes = static_cast<int64_t>(a.blocks / Format::kBlocks) * Format::kBytes;
    const int64_t first = static_cast<int64_t>(token) * a.blocks;
    const unsigned char* block = a.weights + panel * panel_bytes;
    Input<kTokens> input{a.codes + token * width, a.scales + first, a.sums + first, width, a.blocks};
    float32x4_t sum[kPanels][2][kTokens] = {};
    for (const unsigned char* end = block + panel_bytes; block < end; block += Format::kBytes) {
#pragma GCC unroll 1
      for (int b = 0; b < Format::kBlocks; ++b, input.codes += kColumns, ++input.scales, ++input.sums) {
        AddPart<0>(block, panel_bytes, b, input, sum);
        if constexpr (Format::kParts == 2) AddPart<1>(block, panel_bytes, b, input, sum);
      }
    }
    StoreTile(a, panel, token, sum);
  }
};

template <class Format>
void DotMatMul(const MatMulArguments& a, int begin, int end) {
  ForPanelGroups(begin, end, [&](int first, int last) { RunTiles<DotTile<Format>>(a, first, last); });
}

struct Dotprod {
  template <FormatId kFormat>
  static void MatMul(const MatMulArguments& a, int begin, int end) {
    using Format = NeonFormat<kFormat>;
    if constexpr (Format::kFloats) {
      FloatMatMul<Format>(a, begin, end);
    } else {
      DotMatMul<Format>(a, begin, end);
    }
  }
};

}  // namespace
}  // namespace moed::neon

namespace moed {

const KernelTable kNeonDotprodKernels = neon::Table(kProducts<neon::Dotprod>);

}  // namespace moed
