// Products with the float formats, whatever the vectors: a vector's lanes are rows of its panels, and every lane does what the
// scalar definition does for its row. Column k belongs to partial sum k mod 8, so that one row is eight independent chains of
// fused multiply-adds. Included by files compiled for one instruction set each: everything here has internal linkage.
#pragma once

#include "core/kernels/cpu/block_matmul.h"

namespace moed {
namespace {

constexpr int kPartials = 8;
constexpr int kChains = 12;                   // that a tile adds to at once: as many as its registers hold
constexpr int kFirstLevelBytes = 8 << 10;     // of weights, which a tile passes over several times
constexpr int kSecondLevelBytes = 256 << 10;  // of activations, over which all panels pass

constexpr int PartialsTogether(int sums) {
  int partials = kPartials;
  while (partials > 1 && partials * sums > kChains) partials /= 2;
  return partials;
}

// kVectors vectors of panels times kTokens tokens from `token` on.
template <class Format, int kVectors, int kTokens>
inline void FloatTile(const MatMulArguments& a, int panel, int token) {
  using Isa = typename Format::Isa;
  using Floats = typename Isa::Floats;
  constexpr int kTogether = PartialsTogether(kVectors * kTokens);
  constexpr int kColumnBytes = kRows * Format::kBytes;
  constexpr int64_t kColumnsTogether = kFirstLevelBytes / (kVectors * Isa::kPanels * kColumnBytes) / kPartials * kPartials;
  const int64_t width = static_cast<int64_t>(a.blocks) * kColumns;
  const int64_t panel_bytes = Format::PanelBytes(width);
  const unsigned char* weights = a.weights + panel * panel_bytes;
  const unsigned char* values = reinterpret_cast<const unsigned char*>(a.values + token * width);
  Floats partial[kPartials][kVectors][kTokens];
  for (auto& vectors : partial) {
    for (auto& tokens : vectors) {
      for (Floats& sum : tokens) sum = Isa::Zero();
    }
  }
  for (int64_t begin = 0; begin < width; begin += kColumnsTogether) {
    const int64_t end = width - begin < kColumnsTogether ? width : begin + kColumnsTogether;
    for (int first = 0; first < kPartials; first += kTogether) {
      Floats sum[kTogether][kVectors][kTokens];
#pragma GCC unroll 8
      for (int i = 0; i < kTogether; ++i) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 16
          for (int t = 0; t < kTokens; ++t) sum[i][v][t] = partial[first + i][v][t];
        }
      }
      for (int64_t k = begin + first; k < end; k += kPartials) {
        if (first == 0) {
#pragma GCC unroll 4
          for (int p = 0; p < kVectors * Isa::kPanels; ++p) {
            const unsigned char* ahead = weights + p * panel_bytes + k * kColumnBytes + kAheadBytes;
            for (int i = 0; i < kPartials * kColumnBytes; i += 64) __builtin_prefetch(ahead + i);
          }
        }
#pragma GCC unroll 8
        for (int i = 0; i < kTogether; ++i) {
          Floats w[kVectors];
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) {
            w[v] = Format::Column(weights + v * Isa::kPanels * panel_bytes, k, i, panel_bytes);
          }
#pragma GCC unroll 16
          for (int t = 0; t < kTokens; ++t) {
            const Floats x = Isa::Broadcast(values + 4 * (t * width + k + i));
#pragma GCC unroll 4
            for (int v = 0; v < kVectors; ++v) sum[i][v][t] = Isa::MultiplyAdd(w[v], x, sum[i][v][t]);
          }
        }
      }
#pragma GCC unroll 8
      for (int i = 0; i < kTogether; ++i) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 16
          for (int t = 0; t < kTokens; ++t) partial[first + i][v][t] = sum[i][v][t];
        }
      }
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    const int row = (panel + v * Isa::kPanels) * kRows;
    for (int t = 0; t < kTokens; ++t) {
      const auto s = [&](int i) { return partial[i][v][t]; };
      const Floats even = Isa::Add(Isa::Add(s(0), s(4)), Isa::Add(s(2), s(6)));
      const Floats odd = Isa::Add(Isa::Add(s(1), s(5)), Isa::Add(s(3), s(7)));
      Isa::StoreRows(a.output + (token + t) * a.output_stride + row, a.rows - row, Isa::Add(even, odd));
    }
  }
}

// Columns k + kFirst + kLane to k + kFirst + 3 of one panel times the activations in the same lanes of `four`.
template <class Format, int kFirst, int kLane = 0, class Floats = typename Format::Isa::Floats>
inline void AddColumns(const unsigned char* panel, int64_t k, Floats four, Floats (&sum)[4]) {
  using Isa = typename Format::Isa;
  const Floats w = Format::Column(panel, k, kFirst + kLane, 0);
  sum[kLane] = Isa::MultiplyAdd(w, Isa::template Lane<kLane>(four), sum[kLane]);
  if constexpr (kLane < 3) AddColumns<Format, kFirst, kLane + 1>(panel, k, four, sum);
}

// One panel times one token: all partial sums stay in registers.
template <class Format>
inline void FloatRows(const MatMulArguments& a, int panel, int token) {
  using Isa = typename Format::Isa;
  using Floats = typename Isa::Floats;
  constexpr int kGroupBytes = kPartials * kRows * Format::kBytes;
  const int64_t width = static_cast<int64_t>(a.blocks) * kColumns;
  const unsigned char* weights = a.weights + panel * Format::PanelBytes(width);
  const unsigned char* values = reinterpret_cast<const unsigned char*>(a.values + token * width);
  Floats low[] = {Isa::Zero(), Isa::Zero(), Isa::Zero(), Isa::Zero()};
  Floats high[] = {Isa::Zero(), Isa::Zero(), Isa::Zero(), Isa::Zero()};
  for (int64_t k = 0; k < width; k += kPartials, values += 4 * kPartials) {
    const unsigned char* ahead = weights + k * kRows * Format::kBytes + kAheadBytes;
    for (int i = 0; i < kGroupBytes; i += 64) __builtin_prefetch(ahead + i);
    AddColumns<Format, 0>(weights, k, Isa::Four(values), low);
    AddColumns<Format, 4>(weights, k, Isa::Four(values + 16), high);
  }
  const Floats even = Isa::Add(Isa::Add(low[0], high[0]), Isa::Add(low[2], high[2]));
  const Floats odd = Isa::Add(Isa::Add(low[1], high[1]), Isa::Add(low[3], high[3]));
  const int row = panel * kRows;
  Isa::StoreRows(a.output + token * a.output_stride + row, a.rows - row, Isa::Add(even, odd));
}

// FloatTile for a number of tokens known only at run time, at most kMost.
template <class Format, int kVectors, int kMost>
inline void RunFloatTile(const MatMulArguments& a, int panel, int token, int tokens) {
  if constexpr (kMost > 1) {
    if (tokens < kMost) return RunFloatTile<Format, kVectors, kMost - 1>(a, panel, token, tokens);
  }
  if constexpr (kVectors * kMost == 1) {
    FloatRows<Format>(a, panel, token);
  } else {
    FloatTile<Format, kVectors, kMost>(a, panel, token);
  }
}

// As BlockMatMulFor: with few tokens one panel at a time.
template <class Wide, class OnePanel>
inline void FloatMatMul(const MatMulArguments& a, int begin, int end) {
  constexpr int kVectors = 2;
  constexpr int kTokens = 6;
  constexpr int kPanels = kVectors * Wide::Isa::kPanels;
  const int fitting = kSecondLevelBytes / (a.blocks * kColumns * 4);
  const int together = fitting < kTokens ? kTokens : fitting;
  for (int from = 0; from < a.tokens; from += together) {
    const int tokens = Smaller(a.tokens - from, together);
    const TokenTiles tiles{tokens, (tokens + kTokens - 1) / kTokens};
    for (int panel = begin; panel < end;) {
      const bool wide = tokens > kFewTokens && panel + kPanels <= end;
      for (int i = 0; i < tiles.count; ++i) {
        if (wide) {
          RunFloatTile<Wide, kVectors, kTokens>(a, panel, from + tiles.first(i), tiles.size(i));
        } else {
          RunFloatTile<OnePanel, 1, kTokens>(a, panel, from + tiles.first(i), tiles.size(i));
        }
      }
      panel += wide ? kPanels : 1;
    }
  }
}

}  // namespace
}  // namespace moed
