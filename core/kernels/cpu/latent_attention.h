// Latent attention, whatever the vectors: see attention.h, whose sums over values are those of latents. Included by files
// compiled for one instruction set each: everything here has internal linkage.
//
// All query rows share the keys, which lie row after row. So a lane is a query row: a number of a key is broadcast to all of
// them.
#pragma once

#include "core/kernels/cpu/attention.h"

namespace moed {
namespace {

// Rows of floats that are kept apart so that they fall into different places of a cache.
constexpr int kKeyStride = kMostHeadDim + kLineBytes / static_cast<int>(sizeof(float));

// Numbers of a row, widened: `count` of them to `numbers`, which has room for the last vector.
template <class L, class Element>
inline void WidenRow(const unsigned char* row, int count, float* numbers) {
  typename L::Floats x[1];
  int d = 0;
  for (; d + L::kLanes <= count; d += L::kLanes) {
    Columns<L, Element, 1, false>(count, d).Load(row, x);
    L::Store(numbers + d, x[0]);
  }
  if (d == count) return;
  Columns<L, Element, 1, true>(count, d).Load(row, x);
  L::Store(numbers + d, x[0]);
}

// Sums of kKeys keys (kKeys, kKeyStride) with kVectors vectors of query rows; query (dims, kVectors vectors), scores (kKeys,
// kVectors vectors).
template <class L, int kVectors, int kKeys>
inline void ScoreLatents(const float* query, const float* keys, int dims, float scale, float* scores) {
  using Floats = typename L::Floats;
  Floats sum[kKeys][kVectors];
#pragma GCC unroll 16
  for (int k = 0; k < kKeys; ++k) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[k][v] = L::Zero();
  }
  for (int d = 0; d < dims; ++d, query += kVectors * L::kLanes) {
    Floats q[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) q[v] = L::Load(query + v * L::kLanes);
#pragma GCC unroll 16
    for (int k = 0; k < kKeys; ++k) {
      const Floats key = L::Broadcast(keys[k * kKeyStride + d]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[k][v] = L::MultiplyAdd(q[v], key, sum[k][v]);
    }
  }
  const Floats factor = L::Broadcast(scale);
#pragma GCC unroll 16
  for (int k = 0; k < kKeys; ++k) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) L::Store(scores + (k * kVectors + v) * L::kLanes, L::Multiply(factor, sum[k][v]));
  }
}

// Scores of all rows with the positions [0, longest).
template <class L, class Element, int kVectors>
inline void ScoreLatentRows(const LatentArguments& arguments, int longest) {
  constexpr int kRows = kVectors * L::kLanes;
  constexpr int kKeys = L::kSums / kVectors < 12 ? L::kSums / kVectors : 12;
  const AttentionArguments& a = arguments.latents;
  const int dims = a.head_dim + arguments.rotary_dims;
  float query[kRows * kMostHeadDim];  // (dims, kRows)
  if (a.rows < kRows) __builtin_memset(query, 0, dims * kRows * sizeof(float));
  for (int r = 0; r < a.rows; ++r) {
    const int row = a.first_row + r, token = row / a.heads;
    const float* from = a.query + token * a.token_stride + int64_t{row - token * a.heads} * a.head_dim;
    const float* rotated = arguments.rotated + row * arguments.rotated_stride;
    for (int d = 0; d < a.head_dim; ++d) query[d * kRows + r] = from[d];
    for (int d = a.head_dim; d < dims; ++d) query[d * kRows + r] = rotated[d - a.head_dim];
  }
  const int64_t latent_bytes = KvRowBytes(kKvFormatOf<Element>, a.head_dim);
  const int64_t row_bytes = LatentRowBytes(kKvFormatOf<Element>, a.head_dim, arguments.rotary_dims);
  // A latent's last vector may reach into its rotated key, and that one's behind all numbers.
  alignas(64) float keys[kKeys * kKeyStride], scores[kKeys * kRows];
  for (int first = 0; first < longest; first += kKeys) {
    const int count = longest - first < kKeys ? longest - first : kKeys;
    for (int k = 0; k < count; ++k) {
      const int page = (first + k) / a.page_tokens;
      const unsigned char* row = a.pages[page] + (first + k - page * a.page_tokens) * row_bytes;
      WidenRow<L, Element>(row, a.head_dim, keys + k * kKeyStride);
      WidenRow<L, Element>(row + latent_bytes, arguments.rotary_dims, keys + k * kKeyStride + a.head_dim);
    }
    for (int k = count; k < kKeys; ++k) __builtin_memset(keys + k * kKeyStride, 0, dims * sizeof(float));
    ScoreLatents<L, kVectors, kKeys>(query, keys, dims, a.scale, scores);
    for (int r = 0; r < a.rows; ++r) {
      for (int k = 0; k < count; ++k) a.scores[r * a.score_stride + first + k] = scores[k * kRows + r];
    }
  }
}

template <class L, class Element>
inline void AttendLatent(const LatentArguments& arguments) {
  static_assert(kLatentRows % L::kLanes == 0);
  const AttentionArguments& a = arguments.latents;
  const int longest = a.length + (a.first_row + a.rows - 1) / a.heads;
  constexpr int kAll = kLatentRows / L::kLanes, kHalf = kAll > 1 ? kAll / 2 : 1;
  if (a.rows <= kHalf * L::kLanes) {
    ScoreLatentRows<L, Element, kHalf>(arguments, longest);
  } else {
    ScoreLatentRows<L, Element, kAll>(arguments, longest);
  }
  const int tiles = (a.rows + kTileRows - 1) / kTileRows;
  const int64_t row_bytes = LatentRowBytes(kKvFormatOf<Element>, a.head_dim, arguments.rotary_dims);
  for (int i = 0; i < tiles; ++i) {
    const int begin = i * a.rows / tiles, end = (i + 1) * a.rows / tiles;
    const RowTile tile(a, begin, end - begin);
    float totals[kTileRows];
    for (int r = 0; r < tile.rows; ++r) totals[r] = Exponentials<L>(tile.scores[r], 0, tile.length[r], tile.sink[r]);
    for (int sum = 0; sum < tile.length[tile.rows - 1]; sum += kAttentionSumTokens) {
      WithRows(tile.rows, [&](auto rows) {
        constexpr int kRows = rows.kCount;
        SumColumns<L, Element, kRows, VectorsFor<L>(kRows)>(a, tile, totals, row_bytes, sum, 0);
      });
    }
  }
}

}  // namespace
}  // namespace moed
