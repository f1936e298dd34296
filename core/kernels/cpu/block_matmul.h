// Products with the formats of codes and scales, whatever the vectors. A tile is a few panels times a few tokens; its weights are
// read once for all its tokens. Included by files compiled for one instruction set each: everything here has internal linkage.
//
// An instruction set gives two kinds of tile (struct Tiles: panels a tile takes) and this gives the loops:
//   for a range of tokens, for a range of blocks:  pack the activations, tile by tile
//     for panels, for tiles of tokens:             one tile; sums of earlier blocks come from the output
// so that packed activations stay in the second-level cache and a tile's weights in the first while the tokens pass.
#pragma once

#include "core/kernels/kernel_table.h"

namespace moed {
namespace {

constexpr int kRows = 8;      // of a panel
constexpr int kColumns = 32;  // of a block
constexpr int kSteps = 8;     // groups of four columns in a block

// Activations of one block of 32 columns for a tile of n tokens: n * 32 codes, then n scales, then n terms for each part. A part
// is the whole block, or each half of it where the format has a scale every 16 columns. A term is what the format adds for the
// sum of the part's codes: see Format::Term.
template <class Format>
constexpr int kTokenBytes = kColumns + 4 + 4 * Format::kParts;

struct Tile {
  const unsigned char* weights;  // first panel, first block
  int64_t panel_bytes;           // from panel to panel
  int blocks;                    // of 32 columns; whole blocks of the format
  const unsigned char* x;        // `blocks` packed blocks
  float* output;                 // of the first panel and token
  int64_t output_stride;
  int rows;       // that the matrix has from the first panel on
  bool first;     // false: add to what the output holds
  int64_t ahead;  // bytes from the weights in use to those worth fetching; 0: none
};

constexpr int kScratchBytes = 256 << 10;  // packed activations, so that they stay in a second-level cache
constexpr int kTokensTogether = 96;
constexpr int kFewTokens = 2;  // so few that memory is the bound
// Panels of a tile shorter than this end before the processor's prefetch has noticed them: the next ones are fetched meanwhile.
constexpr int kShortBytes = 48 << 10;

inline int Smaller(int a, int b) { return a < b ? a : b; }

// A range of tokens cut into tiles of nearly the same size.
struct TokenTiles {
  int tokens;
  int count;
  int first(int tile) const { return static_cast<int>(static_cast<int64_t>(tokens) * tile / count); }
  int size(int tile) const { return first(tile + 1) - first(tile); }
};

// Blocks [block, block + blocks) of `tokens` tokens from `token` on.
template <class Format>
inline void PackTile(const MatMulArguments& a, int token, int tokens, int block, int blocks, unsigned char* out) {
  for (int t = 0; t < tokens; ++t) {
    const int64_t first = static_cast<int64_t>(token + t) * a.blocks + block;
    const int8_t* codes = a.codes + first * kColumns;
    unsigned char* at = out;
    for (int b = 0; b < blocks; ++b, at += tokens * kTokenBytes<Format>, codes += kColumns) {
      __builtin_memcpy(at + t * kColumns, codes, kColumns);
      __builtin_memcpy(at + tokens * kColumns + 4 * t, a.scales + first + b, 4);
      unsigned char* terms = at + tokens * (kColumns + 4) + 4 * t;
      int32_t sum = a.sums[first + b];
      if constexpr (Format::kParts == 2) {
        int32_t half = 0;
        for (int i = 0; i < kColumns / 2; ++i) half += codes[i];
        sum -= half;
        const int32_t term = Format::Term(half);
        __builtin_memcpy(terms, &term, 4);
        terms += tokens * 4;
      }
      const int32_t term = Format::Term(sum);
      __builtin_memcpy(terms, &term, 4);
    }
  }
}

// Run<kTokens> for a number of tokens known only at run time, at most kMost.
template <class Tiles, int kMost>
inline void RunTile(const Tile& tile, int tokens) {
  if constexpr (kMost > 1) {
    if (tokens < kMost) return RunTile<Tiles, kMost - 1>(tile, tokens);
  }
  Tiles::template Run<kMost>(tile);
}

// Tiles: of several panels; LastTiles: of one, for the panels that are left.
template <class Format, class Tiles, class LastTiles>
inline void BlockMatMul(const MatMulArguments& a, int begin, int end) {
  alignas(64) unsigned char scratch[kScratchBytes];
  const int64_t panel_bytes = static_cast<int64_t>(a.blocks / Format::kBlocks) * Format::kBytes;
  for (int token = 0; token < a.tokens; token += kTokensTogether) {
    const int tokens = Smaller(a.tokens - token, kTokensTogether);
    const TokenTiles tiles{tokens, (tokens + Tiles::kTokens - 1) / Tiles::kTokens};
    const int blocks_together = kScratchBytes / (tokens * kTokenBytes<Format>) / Format::kBlocks * Format::kBlocks;
    for (int block = 0; block < a.blocks; block += blocks_together) {
      const int blocks = Smaller(a.blocks - block, blocks_together);
      for (int i = 0; i < tiles.count; ++i) {
        PackTile<Format>(a, token + tiles.first(i), tiles.size(i), block, blocks,
                         scratch + tiles.first(i) * blocks * kTokenBytes<Format>);
      }
      for (int panel = begin; panel < end;) {
        const bool wide = panel + Tiles::kPanels <= end;
        Tile tile{.weights = a.weights + panel * panel_bytes + static_cast<int64_t>(block / Format::kBlocks) * Format::kBytes,
                  .panel_bytes = panel_bytes,
                  .blocks = blocks,
                  .output_stride = a.output_stride,
                  .rows = a.rows - panel * kRows,
                  .first = block == 0};
        const int64_t panels_bytes = Tiles::kPanels * panel_bytes;
        for (int i = 0; i < tiles.count; ++i) {
          tile.ahead = i > 0                         ? 0
                       : panels_bytes <= kShortBytes ? panels_bytes
                                                     : Tiles::Isa::kBlocksAhead * Format::kBytes / Format::kBlocks;
          tile.x = scratch + tiles.first(i) * blocks * kTokenBytes<Format>;
          tile.output = a.output + (token + tiles.first(i)) * a.output_stride + panel * kRows;
          if (wide) {
            RunTile<Tiles, Tiles::kTokens>(tile, tiles.size(i));
          } else {
            RunTile<LastTiles, Tiles::kTokens>(tile, tiles.size(i));
          }
        }
        panel += wide ? Tiles::kPanels : 1;
      }
    }
  }
}

// kVectors vectors of panels times kTokens tokens.
template <class Format, int kVectors, int kMostTokens>
struct VectorTiles {
  using Isa = typename Format::Isa;
  static constexpr int kPanels = Isa::kPanels * kVectors;
  static constexpr int kTokens = kMostTokens;

  using Floats = typename Isa::Floats;

  // What part kPart of the 32 columns b of a block adds.
  template <int kPart, int kTileTokens>
  static inline __attribute__((always_inline)) void AddPart(const Tile& tile, const unsigned char* block, int b,
                                                            const unsigned char* x, Floats (&sum)[kVectors][kTileTokens]) {
    constexpr int kPartSteps = kSteps / Format::kParts;
    const int64_t vector_bytes = tile.panel_bytes * Isa::kPanels;
    const unsigned char* scales = x + kTileTokens * kColumns;
    const unsigned char* terms = scales + kTileTokens * 4 * (1 + kPart);
    typename Format::Accumulator dot[kVectors][kTileTokens];
#pragma GCC unroll 16
    for (int t = 0; t < kTileTokens; ++t) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) dot[v][t].Start(terms + 4 * t);
    }
#pragma GCC unroll 8
    for (int s = kPartSteps * kPart; s < kPartSteps * (kPart + 1); ++s) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const auto w = Format::Weights(block + v * vector_bytes, tile.panel_bytes, b, s);
#pragma GCC unroll 16
        for (int t = 0; t < kTileTokens; ++t) dot[v][t].Add(w, Isa::Group(x + t * kColumns + 4 * s), s);
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const unsigned char* scaled = block + v * vector_bytes;
      const Floats scale = Format::Scale(scaled, tile.panel_bytes, b, kPart);
#pragma GCC unroll 16
      for (int t = 0; t < kTileTokens; ++t) {
        const Floats x_scale = Isa::Broadcast(scales + 4 * t);
        const unsigned char* term = terms + 4 * t;
        sum[v][t] = Isa::MultiplyAdd(Isa::ToFloats(dot[v][t].Sum(term)), Isa::Multiply(scale, x_scale), sum[v][t]);
        if constexpr (Format::kHasOffsets) {
          const Floats offset = Format::Offset(scaled, tile.panel_bytes, b, kPart);
          sum[v][t] = Isa::MultiplyAdd(Isa::Broadcast(term), Isa::Multiply(offset, x_scale), sum[v][t]);
        }
      }
    }
  }

  template <int kTileTokens>
  static __attribute__((noinline)) void Run(const Tile& tile) {
    Floats sum[kVectors][kTileTokens];
#pragma GCC unroll 16
    for (int t = 0; t < kTileTokens; ++t) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const int row = v * Isa::kPanels * kRows;
        sum[v][t] = tile.first ? Isa::Zero() : Isa::LoadRows(tile.output + t * tile.output_stride + row, tile.rows - row);
      }
    }
    const unsigned char* x = tile.x;
    for (const unsigned char *block = tile.weights, *end = block + tile.blocks / Format::kBlocks * Format::kBytes; block < end;
         block += Format::kBytes) {
#pragma GCC unroll 1
      for (int b = 0; b < Format::kBlocks; ++b, x += kTileTokens * kTokenBytes<Format>) {
        if (kTileTokens > kFewTokens && tile.ahead > 0) {
          constexpr int kAhead = Format::kBytes / Format::kBlocks;
#pragma GCC unroll 4
          for (int p = 0; p < kPanels; ++p) {
            for (int i = 0; i < kAhead; i += 64) __builtin_prefetch(block + kAhead * b + p * tile.panel_bytes + tile.ahead + i);
          }
        }
        AddPart<0>(tile, block, b, x, sum);
        if constexpr (Format::kParts == 2) AddPart<1>(tile, block, b, x, sum);
      }
    }
#pragma GCC unroll 16
    for (int t = 0; t < kTileTokens; ++t) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const int row = v * Isa::kPanels * kRows;
        Isa::StoreRows(tile.output + t * tile.output_stride + row, tile.rows - row, sum[v][t]);
      }
    }
  }
};

// Wide: the format in the widest vectors; OnePanel: in vectors of one panel. With few tokens one panel at a time, since memory
// gives most to a single stream of addresses.
template <class Wide, int kVectors, int kTokens, class OnePanel = Wide>
inline void BlockMatMulFor(const MatMulArguments& a, int begin, int end) {
  if (a.tokens <= kFewTokens) {
    BlockMatMul<OnePanel, VectorTiles<OnePanel, 1, kFewTokens>, VectorTiles<OnePanel, 1, kFewTokens>>(a, begin, end);
  } else {
    BlockMatMul<Wide, VectorTiles<Wide, kVectors, kTokens>, VectorTiles<OnePanel, 1, kTokens>>(a, begin, end);
  }
}

}  // namespace
}  // namespace moed
