// Products with quantised matrices by SDOT: lane r of a panel's two vectors is row r, and one register of activations serves
// four groups of columns, lane by lane.
#include "core/kernels/cpu/neon_formats.h"
#include "core/kernels/products.h"

namespace moed::neon {
namespace {

template <class Block>
struct DotTile {
  // Group kGroup of kPanels panels times its activations, and the groups after it up to the end of `codes`, which holds four.
  template <int kGroup, int kPanels, int kTokens>
  static inline void AddGroups(const unsigned char* block, int64_t panel_bytes, const int8x16_t (&codes)[kTokens],
                               int32x4_t (&dot)[kPanels][2][kTokens]) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const int8x16_t w = LoadGroup<Block, kGroup>(block + p * panel_bytes, half);
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) dot[p][half][t] = vdotq_laneq_s32(dot[p][half][t], w, codes[t], kGroup % 4);
      }
    }
    if constexpr (kGroup % 4 < 3) AddGroups<kGroup + 1>(block, panel_bytes, codes, dot);
  }

  template <int kHalf, int kTokens>
  static inline void LoadCodes(const int8_t* codes, int64_t width, int8x16_t (&x)[kTokens]) {
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) x[t] = vld1q_s8(codes + t * width + 16 * kHalf);
  }

  template <int kPanels, int kTokens>
  static inline void Run(const MatMulArguments& a, int panel, int token) {
    const int64_t width = static_cast<int64_t>(a.blocks) * kColumns;
    const int64_t panel_bytes = static_cast<int64_t>(a.blocks) * kBlockBytes<Block>;
    const unsigned char* block = a.weights + panel * panel_bytes;
    const int8_t* codes = a.codes + token * width;
    const float* scales = a.scales + static_cast<int64_t>(token) * a.blocks;
    const int32_t* sums = a.sums + static_cast<int64_t>(token) * a.blocks;
    float32x4_t sum[kPanels][2][kTokens] = {};
    for (int b = 0; b < a.blocks; ++b, block += kBlockBytes<Block>, codes += kColumns, ++scales, ++sums) {
      int32x4_t dot[kPanels][2][kTokens];
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        const int32x4_t start = vdupq_n_s32(Block::kBias * sums[int64_t{t} * a.blocks]);
#pragma GCC unroll 4
        for (int p = 0; p < kPanels; ++p) dot[p][0][t] = dot[p][1][t] = start;
      }
      int8x16_t x[kTokens];
      LoadCodes<0>(codes, width, x);
      AddGroups<0>(block, panel_bytes, x, dot);
      LoadCodes<1>(codes, width, x);
      AddGroups<4>(block, panel_bytes, x, dot);
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
#pragma GCC unroll 2
        for (int half = 0; half < 2; ++half) {
          const float32x4_t scale = LoadScales<Block>(block + p * panel_bytes, half);
          const float32x4_t offset = LoadOffsets<Block>(block + p * panel_bytes, half);
#pragma GCC unroll 4
          for (int t = 0; t < kTokens; ++t) {
            const int64_t at = int64_t{t} * a.blocks;
            sum[p][half][t] =
                Block::Add(sum[p][half][t], dot[p][half][t], scale, offset, vdupq_n_f32(scales[at]), vdupq_n_s32(sums[at]));
          }
        }
      }
    }
    StoreTile(a, panel, token, sum);
  }
};

template <class Block>
void DotMatMul(const MatMulArguments& a, int begin, int end) {
  ForPanelGroups(begin, end, [&](int first, int last) { RunTiles<DotTile<Block>>(a, first, last); });
}

struct Dotprod {
  template <FormatId kFormat>
  static void MatMul(const MatMulArguments& a, int begin, int end) {
    using Format = NeonFormat<kFormat>;
    if constexpr (IsScalarRow<Format>) {
      Format::MatMul(a, begin, end);
    } else if constexpr (Format::kFloats) {
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
