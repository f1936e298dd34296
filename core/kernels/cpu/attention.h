// Attention and the store of keys and values, whatever the vectors (struct Lanes: lanes256.h, lanes512.h, lanes_neon.h). Included
// by files compiled for one instruction set each: everything here has internal linkage.
//
// Rows are computed a tile at a time, up to kTileRows. Scores: sums of tile rows x keys, a key a lane; a vector of one dimension
// of the keys is loaded (and widened) once for all rows of the tile. Values: sums of tile rows x columns, likewise.
#pragma once

#include "core/kernels/constants.h"
#include "core/kernels/kernel_table.h"

namespace moed {
namespace {

constexpr int kTileRows = 6;
constexpr int kLineBytes = 64;      // of a cache
constexpr int kScoresPadding = 16;  // scores are exponentiated in groups of this many
constexpr int kColumnsInTurn = 64;  // of values, in halves a cache line or two; a multiple of kKvScaleColumns
static_assert(kColumnsInTurn % kKvScaleColumns == 0);

// The rows that are computed together, by their place in a tile.
struct RowTile {
  RowTile(const AttentionArguments& a, int begin, int count) : rows(count) {
    for (int r = 0; r < count; ++r) {
      const int row = a.first_row + begin + r, token = row / a.heads;
      at[r] = token * a.token_stride + int64_t{row - token * a.heads} * a.head_dim;
      length[r] = a.length + (a.grows ? token : 0);
      first[r] = a.window > 0 && a.window < length[r] ? length[r] - a.window : 0;
      if (first[r] < a.first) first[r] = a.first;
      position[r] = a.position + token;
      const int64_t own = int64_t{row - token * a.heads} * (2 * a.bias_reach + 1) + a.bias_reach;
      bias[r] = a.bias == nullptr ? nullptr : a.bias + own;
      sink[r] = a.sinks == nullptr ? -__builtin_inff() : a.sinks[row - token * a.heads];
      query[r] = a.query + at[r];
      scores[r] = a.scores + (begin + r) * a.score_stride;
    }
  }
  int rows;
  int64_t at[kTileRows];  // of its query and output
  int first[kTileRows];   // position it attends; ascending
  int length[kTileRows];  // ascending
  int position[kTileRows];
  const float* bias[kTileRows];  // of the query's own position, where there is one
  float sink[kTileRows];         // minus infinity: none
  const float* query[kTileRows];
  float* scores[kTileRows];
};

template <int kNumber>
struct Constant {
  static constexpr int kCount = kNumber;
};

// body(Constant<rows>), 1 to kTileRows.
template <int kMost = kTileRows, class Body>
inline void WithRows(int rows, const Body& body) {
  if constexpr (kMost > 1) {
    if (rows < kMost) return WithRows<kMost - 1>(rows, body);
  }
  body(Constant<kMost>());
}

template <class Element>
constexpr KvFormat kKvFormatOf = sizeof(Element) == 4   ? KvFormat::kF32
                                 : sizeof(Element) == 2 ? KvFormat::kF16
                                                        : KvFormat::kQ8;

// As many vectors a row as the sums have registers for: a power of two.
template <class L>
constexpr int VectorsFor(int rows) {
  int vectors = 8;
  while (vectors * rows > L::kSums) vectors /= 2;
  return vectors;
}

// The keys of one head in a page, widened as they are loaded.
template <class L, class Element>
struct Keys {
  static constexpr int kElementBytes = sizeof(Element);
  Keys(const unsigned char* head, int, int page_tokens) : at(reinterpret_cast<const Element*>(head)), stride(page_tokens) {}
  inline typename L::Floats Load(int d, int key) const { return L::Load(at + int64_t{d} * stride + key); }
  const Element* at;
  int64_t stride;
};
template <class L>
struct Keys<L, int8_t> {
  static constexpr int kElementBytes = 1;
  Keys(const unsigned char* head, int head_dim, int page_tokens)
      : at(reinterpret_cast<const int8_t*>(head)), stride(page_tokens) {
    const auto* halves = reinterpret_cast<const uint16_t*>(at + head_dim * stride);
    const int64_t count = (head_dim + kKvScaleColumns - 1) / kKvScaleColumns * stride;
    for (int64_t i = 0; i < count; i += L::kLanes) L::Store(scales + i, L::Load(halves + i));
  }
  inline typename L::Floats Load(int d, int key) const {
    return L::Multiply(L::Load(at + d * stride + key), L::Load(scales + d / kKvScaleColumns * stride + key));
  }
  const int8_t* at;
  int64_t stride;
  alignas(64) float scales[kMostHeadDim / kKvScaleColumns * kKvPageTokens];
};

// Scores of kRows rows with keys [key, key + kVectors vectors) of a page. `ahead`: bytes from these
// keys to those that come next.
template <class L, int kRows, int kVectors, class KeysOfPage>
inline void ScoreKeys(const AttentionArguments& a, const KeysOfPage& keys, int key, const float* const* row_queries,
                      int64_t ahead, float* const* scores) {
  using Floats = typename L::Floats;
  constexpr int kBytes = kVectors * L::kLanes * KeysOfPage::kElementBytes;
  Floats sum[kRows][kVectors];
  const float* query[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    query[r] = row_queries[r];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[r][v] = L::Zero();
  }
  const auto* next = reinterpret_cast<const char*>(keys.at + key) + ahead;
  for (int d = 0; d < a.head_dim; ++d, next += keys.stride * KeysOfPage::kElementBytes) {
#pragma GCC unroll 8
    for (int byte = 0; byte < kBytes; byte += kLineBytes) __builtin_prefetch(next + byte, 0, 2);
    Floats k[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) k[v] = keys.Load(d, key + v * L::kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const Floats q = L::Broadcast(query[r][d]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[r][v] = L::MultiplyAdd(q, k[v], sum[r][v]);
    }
  }
  const Floats scale = L::Broadcast(a.scale);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) L::Store(scores[r] + v * L::kLanes, L::Multiply(scale, sum[r][v]));
  }
}

// Keys [key, count) of the page that begins at position `first`, and what fills up their last vector.
template <class L, int kRows, int kVectors, class KeysOfPage>
inline void ScorePage(const AttentionArguments& a, const KeysOfPage& keys, int first, int key, int count,
                      const float* const* query, int64_t ahead, float* const* row_scores) {
  for (; count - key > (kVectors - 1) * L::kLanes; key += kVectors * L::kLanes) {
    float* scores[kRows];
    for (int r = 0; r < kRows; ++r) scores[r] = row_scores[r] + first + key;
    ScoreKeys<L, kRows, kVectors>(a, keys, key, query, ahead, scores);
  }
  if constexpr (kVectors > 1) {
    if (key < count) ScorePage<L, kRows, kVectors / 2>(a, keys, first, key, count, query, ahead, row_scores);
  }
}

template <class L, class KeysOfPage>
inline void ScoreTile(const AttentionArguments& a, const RowTile& tile, const KeysOfPage& keys, int first, int64_t ahead) {
  const int left = tile.length[tile.rows - 1] - first;
  const int count = left < a.page_tokens ? left : a.page_tokens;
  const int key = tile.first[0] > first ? (tile.first[0] - first) / kScoresPadding * kScoresPadding : 0;
  WithRows(tile.rows, [&](auto rows) {
    ScorePage<L, rows.kCount, VectorsFor<L>(rows.kCount)>(a, keys, first, key, count, tile.query, ahead, tile.scores);
  });
}

// As Exp in kernels/math.h, operation by operation.
template <class L>
inline typename L::Floats Exp(typename L::Floats x) {
  using Floats = typename L::Floats;
  x = L::Least(L::Broadcast(kExpHighest), x);
  x = L::Largest(L::Broadcast(kExpLowest), x);
  const Floats round = L::Broadcast(kRoundFloat);
  const Floats shifted = L::MultiplyAdd(x, L::Broadcast(kLog2E), round);
  const Floats n = L::Subtract(shifted, round);
  Floats r = L::MultiplyAdd(n, L::Broadcast(-kLn2High), x);
  r = L::MultiplyAdd(n, L::Broadcast(-kLn2Low), r);
  Floats p = L::Broadcast(kExp[4]);
#pragma GCC unroll 4
  for (int i = 3; i >= 0; --i) p = L::MultiplyAdd(p, r, L::Broadcast(kExp[i]));
  p = L::MultiplyAdd(p, r, L::Broadcast(1.0f));
  p = L::MultiplyAdd(p, r, L::Broadcast(1.0f));
  return L::Scale(p, n, shifted, round);
}

// x becomes exp(x - the largest of x and the sink) from `first` on; returns their lane sum with the sink's own. What fills up the
// first and the last kScoresPadding becomes zero.
template <class L>
inline float Exponentials(float* x, int first, int n, float sink) {
  using Floats = typename L::Floats;
  constexpr int kVectors = kScoresPadding / L::kLanes;
  const float infinity = __builtin_inff();
  const int begin = first / kScoresPadding * kScoresPadding;
  for (int i = begin; i < first; ++i) x[i] = -infinity;
  for (int i = n; i % kScoresPadding != 0; ++i) x[i] = -infinity;
  Floats most[kVectors];
  for (int v = 0; v < kVectors; ++v) most[v] = L::Broadcast(-infinity);
  for (int i = begin; i < n; i += kScoresPadding) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) most[v] = L::Largest(L::Load(x + i + v * L::kLanes), most[v]);  // NaN is passed over
  }
  float lanes[kScoresPadding], largest = sink;
  for (int v = 0; v < kVectors; ++v) L::Store(lanes + v * L::kLanes, most[v]);
  for (int i = 0; i < kScoresPadding; ++i) largest = lanes[i] > largest ? lanes[i] : largest;

  const Floats subtracted = L::Broadcast(largest);
  typename L::Partials sum;
  for (int i = begin; i < n; i += kScoresPadding) {
    Floats e[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      e[v] = Exp<L>(L::Subtract(L::Load(x + i + v * L::kLanes), subtracted));
      L::Store(x + i + v * L::kLanes, e[v]);
    }
    sum.Add(e);
  }
  float s[8];
  sum.Store(s);
  const float total = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
  if (sink == -infinity) return total;
  L::Store(lanes, Exp<L>(L::Subtract(L::Broadcast(sink), subtracted)));
  return total + lanes[0];
}

// Columns of values, widened as they are loaded: kVectors vectors, or with kPart the last few columns of a row. `at` is where
// they begin in a row.
template <class L, class Element, int kVectors, bool kPart>
struct Columns {
  using Floats = typename L::Floats;
  Columns(int head_dim, int begin) : head_dim(head_dim), begin(begin) {}

  inline const unsigned char* In(const unsigned char* row) const { return row + begin * static_cast<int>(sizeof(Element)); }
  inline void Load(const unsigned char* at, Floats (&x)[kVectors]) const {
    const Element* const elements = reinterpret_cast<const Element*>(at);
    if constexpr (kPart) {
      Element some[L::kLanes] = {};
      __builtin_memcpy(some, elements, static_cast<unsigned long>(head_dim - begin) * sizeof(Element));
      x[0] = L::Load(some);
    } else {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) x[v] = L::Load(elements + v * L::kLanes);
    }
    if constexpr (sizeof(Element) == 1) Rescale(at, x);
  }
  // The columns begin where a scale's columns do, or all of them have the same scale.
  inline void Rescale(const unsigned char* at, Floats (&x)[kVectors]) const {
    const unsigned char* const scales = at + head_dim - begin + 2 * (begin / kKvScaleColumns);
    Floats scale = L::Zero();
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      if (v * L::kLanes % kKvScaleColumns == 0) {
        uint16_t half;
        __builtin_memcpy(&half, scales + 2 * (v * L::kLanes / kKvScaleColumns), sizeof(half));
        scale = L::BroadcastHalf(half);
      }
      x[v] = L::Multiply(x[v], scale);
    }
  }
  inline Floats LoadOutput(const float* output, int v) const {
    if constexpr (!kPart) return L::Load(output + begin + v * L::kLanes);
    float some[L::kLanes] = {};
    __builtin_memcpy(some, output + begin, static_cast<unsigned long>(head_dim - begin) * sizeof(float));
    return L::Load(some);
  }
  inline void StoreOutput(float* output, int v, Floats x) const {
    if constexpr (!kPart) return L::Store(output + begin + v * L::kLanes, x);
    float some[L::kLanes];
    L::Store(some, x);
    __builtin_memcpy(output + begin, some, static_cast<unsigned long>(head_dim - begin) * sizeof(float));
  }
  inline void Fetch(const unsigned char* at) const {
#pragma GCC unroll 8
    for (int byte = 0; byte < kVectors * L::kLanes * static_cast<int>(sizeof(Element)); byte += kLineBytes) {
      __builtin_prefetch(at + byte, 0, 3);
    }
  }

  int head_dim;
  int begin;
};

// Adds the weighted values of the positions [begin, end), which all kRows rows see, to `sums` (kRows, kVectors). Not inline:
// these sums have to be in registers, whatever their caller does to its own.
template <class L, int kRows, int kVectors, class SomeColumns>
__attribute__((noinline)) void AddValues(const AttentionArguments& a, const SomeColumns columns, const float* const* scores,
                                         int64_t row_bytes, int begin, int end, int longest, typename L::Floats* sums) {
  using Floats = typename L::Floats;
  Floats sum[kRows][kVectors];
  const float* weights[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    weights[r] = scores[r];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[r][v] = sums[r * kVectors + v];
  }
  for (int t = begin; t < end;) {
    const int page = t / a.page_tokens;
    const int next_page = (page + 1) * a.page_tokens;
    const int stop = end < next_page ? end : next_page;
    const unsigned char* at = columns.In(a.pages[page] + a.values + (t - page * a.page_tokens) * row_bytes);
    const int64_t ahead = next_page < longest ? a.pages[page + 1] - a.pages[page] : 0;
    for (; t < stop; ++t, at += row_bytes) {
      columns.Fetch(at + ahead);
      Floats x[kVectors];
      columns.Load(at, x);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Floats weight = L::Broadcast(weights[r][t]);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sum[r][v] = L::MultiplyAdd(weight, x[v], sum[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[r * kVectors + v] = sum[r][v];
  }
}

// Weighted values of the positions [begin, begin + kAttentionSumTokens), as far as a row sees them, into the rows' outputs.
template <class L, int kRows, int kVectors, class SomeColumns>
inline void SumValues(const AttentionArguments& a, const RowTile& tile, const float* totals, int64_t row_bytes, int begin,
                      SomeColumns columns) {
  using Floats = typename L::Floats;
  const int end = begin + kAttentionSumTokens;
  const int longest = tile.length[kRows - 1];
  const auto from = [&](int r) { return tile.first[r] > begin ? tile.first[r] : begin; };
  const auto seen = [&](int r) { return tile.length[r] < end ? tile.length[r] : end; };
  // Those that all rows see, if there are any; the few that a row sees before and after them are added for it alone.
  const int common = from(kRows - 1) < seen(0) ? from(kRows - 1) : seen(0);
  Floats sums[kRows][kVectors];
  const auto add_alone = [&](int r, int first, int last) {
    if (first < last) AddValues<L, 1, kVectors>(a, columns, tile.scores + r, row_bytes, first, last, longest, sums[r]);
  };
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = L::Zero();
    add_alone(r, from(r), common);
  }
  AddValues<L, kRows, kVectors>(a, columns, tile.scores, row_bytes, common, seen(0), longest, sums[0]);
  for (int r = 0; r < kRows; ++r) {
    if (seen(r) <= begin || tile.first[r] >= end) continue;
    add_alone(r, from(r) > seen(0) ? from(r) : seen(0), seen(r));
    float* const output = a.output + tile.at[r];
    const Floats total = L::Broadcast(totals[r]);
    for (int v = 0; v < kVectors; ++v) {
      const Floats all = tile.first[r] >= begin ? sums[r][v] : L::Add(columns.LoadOutput(output, v), sums[r][v]);
      columns.StoreOutput(output, v, seen(r) == tile.length[r] ? L::Divide(all, total) : all);
    }
  }
}

// The columns [column, end).
template <class L, class Element, int kRows, int kVectors>
inline void SumColumns(const AttentionArguments& a, const RowTile& tile, const float* totals, int64_t row_bytes, int begin,
                       int column, int end) {
  for (; column + kVectors * L::kLanes <= end; column += kVectors * L::kLanes) {
    SumValues<L, kRows, kVectors>(a, tile, totals, row_bytes, begin, Columns<L, Element, kVectors, false>(a.head_dim, column));
  }
  if constexpr (kVectors > 1) {
    SumColumns<L, Element, kRows, kVectors / 2>(a, tile, totals, row_bytes, begin, column, end);
  } else if (column < end) {
    SumValues<L, kRows, 1>(a, tile, totals, row_bytes, begin, Columns<L, Element, 1, true>(a.head_dim, column));
  }
}

// Weighted values of all rows, of the columns [first_column, last_column). Tiles take turns at some columns of the values, which
// a cache holds meanwhile.
template <class L, class Element>
inline void SumTiles(const AttentionArguments& a, const RowTile* tiles, int count, const float (*totals)[kTileRows],
                     int64_t row_bytes, int first_column, int last_column) {
  const int columns = count == 1 ? a.head_dim : kColumnsInTurn;
  const int longest = tiles[count - 1].length[tiles[count - 1].rows - 1];
  const int first_sum = tiles[0].first[0] / kAttentionSumTokens * kAttentionSumTokens;
  for (int begin = first_sum; begin < longest; begin += kAttentionSumTokens) {
    for (int column = first_column; column < last_column; column += columns) {
      const int end = column + columns < last_column ? column + columns : last_column;
      for (int i = 0; i < count; ++i) {
        WithRows(tiles[i].rows, [&](auto rows) {
          constexpr int kRows = rows.kCount;
          SumColumns<L, Element, kRows, VectorsFor<L>(kRows)>(a, tiles[i], totals[i], row_bytes, begin, column, end);
        });
      }
    }
  }
}

// Position by position; the compiler's vectors round alike.
inline void AddBias(const AttentionArguments& a, const RowTile& tile) {
  for (int r = 0; r < tile.rows; ++r) {
    const auto within = [&](int t) { return t < tile.first[r] ? tile.first[r] : t > tile.length[r] ? tile.length[r] : t; };
    const int near = within(tile.position[r] - a.bias_reach), far = within(tile.position[r] + a.bias_reach + 1);
    float* const scores = tile.scores[r];
    for (int t = tile.first[r]; t < near; ++t) scores[t] += tile.bias[r][-a.bias_reach];
    for (int t = near; t < far; ++t) scores[t] += tile.bias[r][t - tile.position[r]];
    for (int t = far; t < tile.length[r]; ++t) scores[t] += tile.bias[r][a.bias_reach];
  }
}

// The rows in as few tiles as there can be, of about the same height.
template <class L, class Element>
inline void Attention(const AttentionArguments& a) {
  constexpr int kMostTiles = kAttentionRows / kTileRows;
  const int tiles = (a.rows + kTileRows - 1) / kTileRows;
  const auto begin_of = [&](int tile) { return tile * a.rows / tiles; };
  const auto tile_of = [&](int tile) { return RowTile(a, begin_of(tile), begin_of(tile + 1) - begin_of(tile)); };
  static_assert(kMostTiles == 2);
  const RowTile tile[kMostTiles] = {tile_of(0), tile_of(tiles - 1)};
  const int longest = tile[1].length[tile[1].rows - 1];

  for (int page = tile[0].first[0] / a.page_tokens, first = page * a.page_tokens; first < longest;
       first += a.page_tokens, ++page) {
    const Keys<L, Element> keys(a.pages[page] + a.keys, a.head_dim, a.page_tokens);
    const int64_t ahead = first + a.page_tokens < longest ? a.pages[page + 1] - a.pages[page] : 0;
    for (int i = 0; i < tiles; ++i) ScoreTile<L>(a, tile[i], keys, first, ahead);
  }
  float totals[kMostTiles][kTileRows];
  for (int i = 0; i < tiles; ++i) {
    if (a.bias != nullptr) AddBias(a, tile[i]);
    for (int r = 0; r < tile[i].rows; ++r)
      totals[i][r] = Exponentials<L>(tile[i].scores[r], tile[i].first[r], tile[i].length[r], tile[i].sink[r]);
  }
  SumTiles<L, Element>(a, tile, tiles, totals, KvRowBytes(kKvFormatOf<Element>, a.head_dim), 0, a.head_dim);
}

// As StoreKvRow: rounded to halves, the largest one instead of infinity.
template <class L>
inline void StoreHalves(const float* numbers, int head_dim, uint16_t* halves) {
  const typename L::Floats most = L::Broadcast(65504.0f), least = L::Broadcast(-65504.0f);
  const auto rounded = [&](const float* from, uint16_t* to) {
    L::StoreHalves(to, L::PlainNan(L::Largest(least, L::Least(most, L::Load(from)))));
  };
  int d = 0;
  for (; d + L::kLanes <= head_dim; d += L::kLanes) rounded(numbers + d, halves + d);
  if (d == head_dim) return;
  float some[L::kLanes] = {};
  uint16_t some_halves[L::kLanes];
  __builtin_memcpy(some, numbers + d, static_cast<unsigned long>(head_dim - d) * sizeof(float));
  rounded(some, some_halves);
  __builtin_memcpy(halves + d, some_halves, static_cast<unsigned long>(head_dim - d) * sizeof(uint16_t));
}

}  // namespace
}  // namespace moed
