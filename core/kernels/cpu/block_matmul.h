// Products with the formats of codes and scales, whatever the vectors. A tile is a few panels times a few tokens; its weights are
// read once for all its tokens. Included by files compiled for one instruction set each: everything here has internal linkage.
//
// An instruction set gives two kinds of tile (struct Tiles: panels a tile takes) and this gives the loops:
//   for a range of tokens, for a range of blocks:  pack the activations, tile by tile
//     for panels, for tiles of tokens:             one tile; sums of earlier blocks come from the output
// so that packed activations stay in the second-level cache and a tile's weights in the first while the tokens pass.
#pragma once

#include <utility>

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
// From the weights in use to those worth fetching, where few tokens pass: the processor's own prefetch ends with each page.
constexpr int kAheadBytes = 2 << 10;
constexpr int kLine = 64;  // of the processor's caches, in bytes
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

  // Addition i of kParts parts' steps, from part kFirst on: its step, and the how manieth of its part it is. Together, the steps
  // that one load serves follow each other.
  struct Addition {
    int step;
    int of_part;
  };
  template <int kFirst, int kParts>
  static constexpr Addition AdditionAt(int i) {
    constexpr int kPartSteps = kSteps / Format::kParts;
    if (kParts < Format::kParts) return {kPartSteps * kFirst + i, i};
    constexpr int kShare = kSteps / Format::kLoads;
    constexpr int kOfPart = kShare / kParts;  // 0: a load serves one part
    return {i % kShare * Format::kLoads + i / kShare, kOfPart == 0 ? i % kPartSteps : i / kShare * kOfPart + i % kOfPart};
  }

  // What parts kFirst to kFirst + kParts - 1 of the 32 columns b of a block add.
  template <int kFirst, int kParts, int kTileTokens>
  static inline __attribute__((always_inline)) void AddParts(const Tile& tile, const unsigned char* block, int b,
                                                             const typename Format::Header (&headers)[kVectors],
                                                             const unsigned char* x, Floats (&sum)[kVectors][kTileTokens]) {
    constexpr int kPartSteps = kSteps / Format::kParts;
    constexpr int kShare = kParts < Format::kParts ? 1 : kSteps / Format::kLoads;
    const int64_t vector_bytes = tile.panel_bytes * Isa::kPanels;
    const unsigned char* scales = x + kTileTokens * kColumns;
    const unsigned char* terms = scales + kTileTokens * 4;
    typename Format::Accumulator dot[kParts][kVectors][kTileTokens];
#pragma GCC unroll 2
    for (int p = 0; p < kParts; ++p) {
#pragma GCC unroll 16
      for (int t = 0; t < kTileTokens; ++t) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) dot[p][v][t].Start(terms + ((kFirst + p) * kTileTokens + t) * 4);
      }
    }
    decltype(Format::Load(block, 0, 0, 0)) loaded[kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kPartSteps * kParts; ++i) {
      const Addition addition = AdditionAt<kFirst, kParts>(i);
      const int s = addition.step;
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        if (i % kShare == 0) loaded[v] = Format::Load(block + v * vector_bytes, tile.panel_bytes, b, s % Format::kLoads);
        const auto w = Format::Weights(loaded[v], s);
#pragma GCC unroll 16
        for (int t = 0; t < kTileTokens; ++t) {
          dot[s / kPartSteps - kFirst][v][t].Add(w, Isa::Group(x + t * kColumns + 4 * s), addition.of_part);
        }
      }
    }
#pragma GCC unroll 2
    for (int p = 0; p < kParts; ++p) {
      const int part = b * Format::kParts + kFirst + p;
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const Floats scale = headers[v].Scale(part);
#pragma GCC unroll 16
        for (int t = 0; t < kTileTokens; ++t) {
          const Floats x_scale = Isa::Broadcast(scales + 4 * t);
          const unsigned char* term = terms + ((kFirst + p) * kTileTokens + t) * 4;
          sum[v][t] = Isa::MultiplyAdd(Isa::ToFloats(dot[p][v][t].Sum(term)), Isa::Multiply(scale, x_scale), sum[v][t]);
          if constexpr (Format::kHasOffsets) {
            const Floats offset = Isa::Multiply(headers[v].Offset(part), x_scale);
            sum[v][t] = Format::kSubtracted ? Isa::MultiplySubtract(Isa::Broadcast(term), offset, sum[v][t])
                                            : Isa::MultiplyAdd(Isa::Broadcast(term), offset, sum[v][t]);
          }
        }
      }
    }
  }

  // The 32 columns b of a block of every panel.
  template <int kTileTokens>
  static inline __attribute__((always_inline)) void AddColumns(const Tile& tile, const unsigned char* block, int b,
                                                               const typename Format::Header (&headers)[kVectors],
                                                               const unsigned char* x, Floats (&sum)[kVectors][kTileTokens]) {
    constexpr bool kFew = kTileTokens <= kFewTokens;
    if (kFew || tile.ahead > 0) {
      constexpr int kBytes = Format::kBytes / Format::kBlocks;
#pragma GCC unroll 4
      for (int p = 0; p < kPanels; ++p) {
        const unsigned char* at = block + kBytes * b + p * tile.panel_bytes + (kFew ? kAheadBytes : tile.ahead);
        for (int i = 0; i < kBytes; i += kLine) __builtin_prefetch(at + i);
      }
    }
    x += b * kTileTokens * kTokenBytes<Format>;
    if constexpr (kFew || Format::kParts == 1) {
      AddParts<0, Format::kParts>(tile, block, b, headers, x, sum);
    } else {
      AddParts<0, 1>(tile, block, b, headers, x, sum);
      AddParts<1, 1>(tile, block, b, headers, x, sum);
    }
  }

  // A block of every panel. Few tokens have the code of its columns one after the other, so that nothing computes addresses.
  template <int kTileTokens, int... kVector, int... kB>
  static inline __attribute__((always_inline)) void AddBlock(const Tile& tile, const unsigned char* block, const unsigned char* x,
                                                             Floats (&sum)[kVectors][kTileTokens],
                                                             std::integer_sequence<int, kVector...>,
                                                             std::integer_sequence<int, kB...>) {
    const typename Format::Header headers[kVectors] = {{block + kVector * Isa::kPanels * tile.panel_bytes, tile.panel_bytes}...};
    if constexpr (kTileTokens <= kFewTokens) {
      (AddColumns<kTileTokens>(tile, block, kB, headers, x, sum), ...);
    } else {
#pragma GCC unroll 1
      for (int b = 0; b < Format::kBlocks; ++b) AddColumns<kTileTokens>(tile, block, b, headers, x, sum);
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
         block += Format::kBytes, x += Format::kBlocks * kTileTokens * kTokenBytes<Format>) {
      AddBlock<kTileTokens>(tile, block, x, sum, std::make_integer_sequence<int, kVectors>(),
                            std::make_integer_sequence<int, Format::kBlocks>());
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
