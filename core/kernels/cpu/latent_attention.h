// Latent attention, whatever the vectors: see attention.h, whose sums over values are those of latents. Included by files
// compiled for one instruction set each: everything here has internal linkage.
//
// All query rows share the keys, which lie row after row. So a lane is a query row: a number of a key is broadcast to all of
// them.
#pragma once

#include "core/kernels/cpu/attention.h"

namespace moed {
namespace {

constexpr int kKeyDims =
    128;  // of keys and queries, that are multiplied in turn: what a cache holds; a multiple of kKvScaleColumns
constexpr int kKeyStride =
    kKeyDims + kLineBytes / static_cast<int>(sizeof(float));  // floats: keys fall into different places of it
static_assert(kKeyDims % kKvScaleColumns == 0);

// Numbers [begin, end) of a row of `count`, widened to `numbers`, which has room for the last vector.
template <class L, class Element>
inline void WidenRow(const unsigned char* row, int count, int begin, int end, float* numbers) {
  typename L::Floats x[1];
  int d = begin;
  for (; d + L::kLanes <= end; d += L::kLanes, numbers += L::kLanes) {
    const Columns<L, Element, 1, false> columns(count, d);
    columns.Load(columns.In(row), x);
    L::Store(numbers, x[0]);
  }
  if (d == end) return;
  const Columns<L, Element, 1, true> columns(count, d);
  columns.Load(columns.In(row), x);
  L::Store(numbers, x[0]);
}

// The keys that come next, fetched while others are multiplied: of each row its first line, then of each the second, and so on,
// spread over the dimensions that are multiplied. Fetched at once they would wait for one another.
class NextKeys {
 public:
  // `bytes` of each row from `at` on; none: nothing comes.
  NextKeys(const unsigned char* at, int64_t row_bytes, int rows, int bytes, int dims)
      : at_(at), row_bytes_(row_bytes), rows_(rows), lines_((bytes + kLineBytes - 1) / kLineBytes) {
    every_ = lines_ * rows < dims && lines_ > 0 ? dims / (lines_ * rows) : 1;
  }
  // Once for each dimension.
  inline void Fetch() {
    if (--wait_ > 0 || line_ == lines_) return;
    wait_ = every_;
    __builtin_prefetch(at_ + row_ * row_bytes_ + line_ * kLineBytes, 0, 3);
    if (++row_ == rows_) row_ = 0, ++line_;
  }

 private:
  const unsigned char* at_;
  int64_t row_bytes_;
  int rows_, lines_, every_;
  int row_ = 0, line_ = 0, wait_ = 0;
};

// Adds the products of kKeys keys (kKeys, kKeyStride) with kVectors vectors of query rows to `sums` (kKeys, kVectors vectors);
// query (dims, kVectors vectors).
template <class L, int kVectors, int kKeys>
__attribute__((noinline)) void ScoreLatents(const float* query, const float* keys, int dims, NextKeys next, float* sums) {
  using Floats = typename L::Floats;
  Floats sum[kKeys][kVectors];
#pragma GCC unroll 16
  for (int k = 0; k < kKeys; ++k) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[k][v] = L::Load(sums + (k * kVectors + v) * L::kLanes);
  }
  for (int d = 0; d < dims; ++d, query += kVectors * L::kLanes) {
    next.Fetch();
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
#pragma GCC unroll 16
  for (int k = 0; k < kKeys; ++k) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) L::Store(sums + (k * kVectors + v) * L::kLanes, sum[k][v]);
  }
}

// The queries of all rows, (dims, kRows): those with latents, then the rotated ones. Rows beyond are zero.
template <int kRows>
inline void PackQueries(const LatentArguments& arguments, float* query) {
  const AttentionArguments& a = arguments.latents;
  const int dims = a.head_dim + arguments.rotary_dims;
  if (a.rows < kRows) __builtin_memset(query, 0, static_cast<unsigned long>(dims) * kRows * sizeof(float));
  for (int r = 0; r < a.rows; ++r) {
    const int row = a.first_row + r, token = row / a.heads;
    const float* from = a.query + token * a.token_stride + int64_t{row - token * a.heads} * a.head_dim;
    const float* rotated = arguments.rotated + row * arguments.rotated_stride;
    for (int d = 0; d < a.head_dim; ++d) query[d * kRows + r] = from[d];
    for (int d = a.head_dim; d < dims; ++d) query[d * kRows + r] = rotated[d - a.head_dim];
  }
}

// Scores of all rows with the positions [arguments.begin, arguments.end), a page at a time.
template <class L, class Element, int kVectors>
inline void ScoreLatentRows(const LatentArguments& arguments) {
  constexpr int kRows = kVectors * L::kLanes;
  constexpr int kKeys = L::kSums / kVectors < 16 ? L::kSums / kVectors : 16;
  const AttentionArguments& a = arguments.latents;
  float query[kRows * kMostHeadDim];
  PackQueries<kRows>(arguments, query);
  const int64_t latent_bytes = KvRowBytes(kKvFormatOf<Element>, a.head_dim);
  const int64_t row_bytes = LatentRowBytes(kKvFormatOf<Element>, a.head_dim, arguments.rotary_dims);
  alignas(64) float keys[kKeys * kKeyStride] = {};
  alignas(64) float sums[(kKvPageTokens + kKeys) * kRows];  // (positions, kRows)
  for (int first = arguments.begin, page = first / a.page_tokens; first < arguments.end; first += a.page_tokens, ++page) {
    const int left = arguments.end - first, count = left < a.page_tokens ? left : a.page_tokens;
    const int64_t next_page = left > a.page_tokens ? a.pages[page + 1] - a.pages[page] : 0;
    __builtin_memset(sums, 0, sizeof(sums));
    // Some numbers of all keys of the page after the other, a sum in the order of the numbers: `part` begins in a row, at number
    // `done` of a query.
    const auto score = [&](const unsigned char* part, int numbers, int done) {
      for (int begin = 0; begin < numbers; begin += kKeyDims) {
        const int end = begin + kKeyDims < numbers ? begin + kKeyDims : numbers;
        for (int key = 0; key < count; key += kKeys) {
          for (int k = 0; k < kKeys && key + k < count; ++k) {
            WidenRow<L, Element>(part + (key + k) * row_bytes, numbers, begin, end, keys + k * kKeyStride);
          }
          const int offset = begin * static_cast<int>(sizeof(Element)), bytes = (end - begin) * static_cast<int>(sizeof(Element));
          const NextKeys next(part + next_page + key * row_bytes + offset, row_bytes, kKeys, next_page == 0 ? 0 : bytes,
                              end - begin);
          ScoreLatents<L, kVectors, kKeys>(query + (done + begin) * kRows, keys, end - begin, next, sums + key * kRows);
        }
      }
    };
    score(a.pages[page], a.head_dim, 0);
    score(a.pages[page] + latent_bytes, arguments.rotary_dims, a.head_dim);
    for (int r = 0; r < a.rows; ++r) {
      for (int k = 0; k < count; ++k) a.scores[r * a.score_stride + first + k] = a.scale * sums[k * kRows + r];
    }
  }
}

template <class L, class Element>
inline void SumLatents(const LatentArguments& arguments) {
  const AttentionArguments& a = arguments.latents;
  constexpr int kMostTiles = (kLatentRows + kTileRows - 1) / kTileRows;
  const int tiles = (a.rows + kTileRows - 1) / kTileRows;
  const auto begin_of = [&](int i) { return i * a.rows / tiles; };
  const auto tile_of = [&](int i) { return RowTile(a, begin_of(i), begin_of(i + 1) - begin_of(i)); };
  static_assert(kMostTiles == 3 && kLatentColumns % kColumnsInTurn == 0);
  const RowTile tile[kMostTiles] = {tile_of(0), tile_of(tiles > 1 ? 1 : 0), tile_of(tiles - 1)};
  float totals[kMostTiles][kTileRows];
  for (int i = 0; i < tiles; ++i) {
    for (int r = 0; r < tile[i].rows; ++r) totals[i][r] = arguments.totals[begin_of(i) + r];
  }
  const int64_t row_bytes = LatentRowBytes(kKvFormatOf<Element>, a.head_dim, arguments.rotary_dims);
  SumTiles<L, Element>(a, tile, tiles, totals, row_bytes, arguments.begin, arguments.end);
}

template <class L, class Element>
inline void AttendLatent(const LatentArguments& arguments) {
  static_assert(kLatentRows % L::kLanes == 0);
  constexpr int kAll = kLatentRows / L::kLanes, kHalf = kAll > 1 ? kAll / 2 : 1;
  const AttentionArguments& a = arguments.latents;
  switch (arguments.stage) {
    case LatentStage::kScores:
      if (a.rows <= kHalf * L::kLanes) return ScoreLatentRows<L, Element, kHalf>(arguments);
      return ScoreLatentRows<L, Element, kAll>(arguments);
    case LatentStage::kWeights:
      for (int r = arguments.begin; r < arguments.end; ++r) {
        const RowTile row(a, r, 1);
        arguments.totals[r] = Exponentials<L>(row.scores[0], 0, row.length[0], row.sink[0]);
      }
      return;
    case LatentStage::kSums:
      return SumLatents<L, Element>(arguments);
  }
}

}  // namespace
}  // namespace moed
