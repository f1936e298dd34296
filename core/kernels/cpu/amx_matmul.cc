// Products with packed matrices by tile instructions. Weights of two panels become levels once for many tokens:
//   for a range of tokens, for a chunk of blocks:  pack the activations
//     for two panels:                              unpack the weights of the chunk
//       for 16 tokens:                             one chunk of products; sums of earlier chunks come from the output
// so that activations, levels and sums stay in the first-level cache. What does not pay takes the kernels of AVX-512 VNNI: few
// tokens, few that are left over, and offsets of half blocks, whose scaling is most of the work. So do formats of floats.
#include <immintrin.h>

#include "core/kernels/cpu/amx_tiles.h"
#include "core/kernels/cpu/avx2.h"
#include "core/kernels/cpu/avx512.h"
#include "core/kernels/cpu/vector_formats.h"
#include "core/kernels/cpu/vectors512.h"
#include "core/kernels/products.h"

namespace moed {
namespace {

constexpr int kTokensOfRange = 4 * kTileTokens;

// `blocks` blocks of 32 columns from `block` on; two panels, or the same one twice where panel_bytes is 0.
template <class Format>
inline void Unpack(const unsigned char* block, int64_t panel_bytes, int blocks, ChunkWeights<Format::kParts>& out) {
  using Isa = typename Format::Isa;
  constexpr int kParts = Format::kParts;
  const __m512i zero = _mm512_set1_epi8(static_cast<char>(Format::kZero));
  for (int first = 0; first < blocks; first += Format::kBlocks, block += Format::kBytes) {
    const typename Format::Header header(block, panel_bytes);
    for (int i = 0; i < Format::kBytes; i += kLine) {  // of the next two panels, which few bytes are read of
      __builtin_prefetch(block + 2 * panel_bytes + i);
      __builtin_prefetch(block + 3 * panel_bytes + i);
    }
    for (int b = 0; b < Format::kBlocks; ++b) {
      int8_t* const levels = out.levels + (first + b) * kColumns * kTileRows;
#pragma GCC unroll 8
      for (int load = 0; load < Format::kLoads; ++load) {
        const auto loaded = Format::Load(block, panel_bytes, b, load);
#pragma GCC unroll 8
        for (int s = load; s < kSteps; s += Format::kLoads) {
          Isa::Store(reinterpret_cast<unsigned char*>(levels + 4 * kTileRows * s),
                     _mm512_sub_epi8(Format::Weights(loaded, s), zero));
        }
      }
#pragma GCC unroll 2
      for (int p = 0; p < kParts; ++p) {
        const int part = (first + b) * kParts + p;
        _mm512_store_ps(out.scales[part], header.Scale(b * kParts + p));
        if constexpr (Format::kHasOffsets) {
          const auto offset = header.Offset(b * kParts + p);
          _mm512_store_ps(out.offsets[part], Format::kSubtracted ? Isa::Multiply(offset, Isa::Splat(-1)) : offset);
        }
      }
    }
  }
}

// Blocks [block, block + blocks) of `tokens` tokens from `token` on.
template <class Format>
inline void PackChunk(const MatMulArguments& a, int token, int tokens, int block, int blocks, ChunkInputs<Format::kParts>& out) {
  for (int t = 0; t < tokens; ++t) {
    const int64_t first = static_cast<int64_t>(token + t) * a.blocks + block;
    const int8_t* codes = a.codes + first * kColumns;
    for (int b = 0; b < blocks; ++b, codes += kColumns) {
      __builtin_memcpy(out.codes + (b * kTileTokens + t) * kColumns, codes, kColumns);
      out.scales[b][t] = a.scales[first + b];
      if constexpr (Format::kHasOffsets) {
        static_assert(Format::kParts == 1);
        out.sums[b][t] = static_cast<float>(a.sums[first + b]);
      }
    }
  }
}

// The chunk's products of all panels with the tokens of a range.
template <class Format>
inline void MultiplyPanels(const MatMulArguments& a, int begin, int end, int token, int tokens, int block, int blocks,
                           const ChunkInputs<Format::kParts>* inputs) {
  ChunkWeights<Format::kParts> weights;
  Dots dots;
  const int64_t panel_bytes = static_cast<int64_t>(a.blocks / Format::kBlocks) * Format::kBytes;
  const int last_row = Smaller(a.rows, end * kRows);
  for (int panel = begin; panel < end; panel += 2) {
    Unpack<Format>(a.weights + panel * panel_bytes + static_cast<int64_t>(block / Format::kBlocks) * Format::kBytes,
                   panel + 1 < end ? panel_bytes : 0, blocks, weights);
    BeginTokens(weights, inputs[0], dots);
    for (int t = 0; t < tokens; t += kTileTokens) {
      const TileOutput output{.at = a.output + (token + t) * a.output_stride + panel * kRows,
                              .stride = a.output_stride,
                              .rows = last_row - panel * kRows,
                              .first = block == 0};
      MultiplyChunkOf<Format::kHasOffsets>(Smaller(tokens - t, kTileTokens), weights, inputs + t / kTileTokens, blocks, dots,
                                           output);
    }
  }
}

template <class Format>
inline void TileMatMul(const MatMulArguments& a, int begin, int end) {
  ChunkInputs<Format::kParts> inputs[kTokensOfRange / kTileTokens + 1];  // the last one is multiplied and not added
  OpenTiles<Format::kParts>();
  for (int token = 0; token < a.tokens; token += kTokensOfRange) {
    const int tokens = Smaller(a.tokens - token, kTokensOfRange);
    for (int block = 0; block < a.blocks; block += kChunkBlocks) {
      const int blocks = Smaller(a.blocks - block, kChunkBlocks);
      for (int t = 0; t < tokens; t += kTileTokens) {
        PackChunk<Format>(a, token + t, Smaller(tokens - t, kTileTokens), block, blocks, inputs[t / kTileTokens]);
      }
      MultiplyPanels<Format>(a, begin, end, token, tokens, block, blocks, inputs);
    }
  }
  _tile_release();  // a thread that holds tiles is dear to switch
}

// Tokens [first, first + tokens) of a product with a format of codes.
inline MatMulArguments Tokens(const MatMulArguments& a, int first, int tokens) {
  MatMulArguments some = a;
  const int64_t blocks = static_cast<int64_t>(first) * a.blocks;
  some.tokens = tokens;
  some.codes += blocks * kColumns;
  some.scales += blocks;
  some.sums += blocks;
  some.output += first * a.output_stride;
  return some;
}

template <class Format>
consteval bool Pays() {
  if constexpr (Format::kFloats) {
    return false;
  } else {
    return Format::kParts == 1 || !Format::kHasOffsets;
  }
}

struct AmxInt8 {
  template <FormatId kFormat>
  static void MatMul(const MatMulArguments& a, int begin, int end) {
    using Format = VectorFormat<kFormat, Vnni512>;
    const MatMulFunction by_vectors = kAvx512VnniKernels.mat_mul.of[static_cast<int>(kFormat)];
    if constexpr (Pays<Format>()) {
      const int left = a.tokens % kTileTokens;
      const int tiled = a.tokens < kTileTokens ? 0 : a.tokens - (left < kFewestTileTokens ? left : 0);
      if (tiled > 0) TileMatMul<Format>(Tokens(a, 0, tiled), begin, end);
      if (tiled < a.tokens) by_vectors(Tokens(a, tiled, a.tokens - tiled), begin, end);
    } else {
      by_vectors(a, begin, end);
    }
  }
};

}  // namespace

const KernelTable kAmxInt8Kernels =
    avx2::Table(kProducts<AmxInt8>, {avx512::AttentionF32, avx512::AttentionF16, avx512::AttentionQ8, avx512::AttendLatentF32,
                                     avx512::AttendLatentF16, avx512::AttendLatentQ8});

}  // namespace moed
