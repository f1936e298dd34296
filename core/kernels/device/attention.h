// Attention where a block of threads takes all positions: up to 8 query rows that share keys, of neighbouring tokens, go through
// them twice. The first time finds the largest score. The second time makes the exponentials of 256 positions, a thread each,
// then adds the values of those positions up, a thread for each column.
#pragma once

#include <cmath>

#include "core/kernels/cuda_kernel_set.h"
#include "core/kernels/device/kv_numbers.h"
#include "core/kernels/device/lane_sums.h"
#include "core/kernels/math.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

constexpr int kRows = cuda::kAttentionRowsOfBlock;
constexpr int kSumTokens = cuda::kAttentionPiece;
constexpr unsigned kAttentionThreads = 128;
constexpr float kNoSink = -INFINITY;

// What a block of threads attends. Row r is head r % group of token r / group.
struct AttentionRows {
  cuda::AttentionTile tile;
  int64_t first_head;   // among all of a token
  int64_t token_heads;  // heads of a token
  int group;
  int rows;
  int64_t head_bytes;  // where the keys of these heads begin in a page
  int64_t value_bytes;

  __device__ int token(int row) const { return row / group; }
  __device__ int64_t head(int row) const { return first_head + row % group; }
  __device__ int64_t query(int row) const { return (tile.first_token + token(row)) * token_heads + head(row); }  // among all
  __device__ int position(int row) const { return tile.position + token(row); }
  __device__ int length(int row) const { return tile.seen > 0 ? tile.seen : position(row) + 1; }
  __device__ int first(int row, int window) const {
    return max(tile.first, window > 0 && window < length(row) ? length(row) - window : 0);
  }
  __device__ int begin(int window) const { return first(0, window); }  // positions that some row sees
  __device__ int end() const { return length(rows - 1); }
};

// `group` heads of kv head `kv_head`, from `first` of them on.
__device__ inline AttentionRows RowsOf(const cuda::AttentionOperation& a, int tile_number, int kv_head, int first) {
  const cuda::AttentionTile tile = Global<const cuda::AttentionTile>(a.tiles)[tile_number];
  const int group = min(a.group, a.heads_of_kv - first);
  return {.tile = tile,
          .first_head = static_cast<int64_t>(kv_head) * a.heads_of_kv + first,
          .token_heads = a.heads,
          .group = group,
          .rows = group * tile.tokens,
          .head_bytes = kv_head * a.head_bytes,
          .value_bytes = a.rotated == nullptr ? (a.kv_heads + kv_head) * a.head_bytes : 0};
}

__device__ inline Global<const unsigned char> PageOf(const cuda::AttentionOperation& a, const AttentionRows& own, int position) {
  return Global<const unsigned char>(Global<const unsigned char* const>(own.tile.pages)[position / a.page_tokens]);
}

__device__ inline float Bias(const cuda::AttentionOperation& a, const AttentionRows& own, int row, int position) {
  const int behind = max(-a.bias.reach, min(a.bias.reach, position - own.position(row)));
  return Global<const float>(a.bias.table)[own.head(row) * (2 * a.bias.reach + 1) + a.bias.reach + behind];
}

__device__ inline float Sink(const cuda::AttentionOperation& a, const AttentionRows& own, int row) {
  return a.sinks == nullptr ? kNoSink : Global<const float>(a.sinks)[own.head(row)];
}

template <KvFormat kFormat, bool kLatent>
struct AttentionOfBlock {
  const cuda::AttentionOperation& a;
  AttentionRows own;
  Shared<float> queries;       // (rows, width)
  Shared<float> exponentials;  // (kRows, kSumTokens)
  Shared<float> of_rows;       // (kRows): largest scores, then totals
  Shared<float> partials;      // (kRows, 8), also (warps, kRows)

  __device__ int width() const { return a.dims + (kLatent ? a.rotary_dims : 0); }
  __device__ Global<const unsigned char> Page(int position) const { return PageOf(a, own, position); }
  __device__ bool Sees(int row, int position) const { return position >= own.first(row, a.window) && position < own.length(row); }
  __device__ int begin() const { return own.begin(a.window); }
  __device__ int end() const { return own.end(); }
  __device__ int first_sum() const { return begin() / kSumTokens * kSumTokens; }

  __device__ void StageQueries() {
    for (int i = threadIdx.x; i < own.rows * width(); i += blockDim.x) {
      const int row = i / width(), d = i % width();
      queries[i] = d < a.dims ? Global<const float>(a.query)[own.query(row) * a.dims + d]
                              : Global<const float>(a.rotated)[own.query(row) * a.rotated_stride + (d - a.dims)];
    }
  }

  // scores[row] of all rows, whether they see the position or not.
  __device__ void Score(int position, float (&scores)[kRows]) const {
    const Global<const unsigned char> page = Page(position);
    const int slot = position % a.page_tokens;
    MOED_UNROLL
    for (int row = 0; row < kRows; ++row) scores[row] = 0;
    if constexpr (kLatent) {
      const Global<const unsigned char> latent = page + slot * a.row_bytes;
      for (int d = 0; d < a.dims; ++d) AddProducts(KvNumber<kFormat>(latent, a.dims, 1, 0, d), d, scores);
      const Global<const unsigned char> rotated = latent + a.head_bytes;
      for (int d = 0; d < a.rotary_dims; ++d) {
        AddProducts(KvNumber<kFormat>(rotated, a.rotary_dims, 1, 0, d), a.dims + d, scores);
      }
    } else {
      const Global<const unsigned char> keys = page + own.head_bytes;
      for (int d = 0; d < a.dims; ++d) AddProducts(KvNumber<kFormat>(keys, a.dims, a.page_tokens, slot, d), d, scores);
    }
    MOED_UNROLL
    for (int row = 0; row < kRows; ++row) scores[row] = a.scale * scores[row];
    if (a.bias.table == nullptr) return;
    MOED_UNROLL
    for (int row = 0; row < kRows; ++row) {
      if (row < own.rows) scores[row] = scores[row] + Bias(a, own, row, position);
    }
  }
  __device__ void AddProducts(float key, int d, float (&scores)[kRows]) const {
    MOED_UNROLL
    for (int row = 0; row < kRows; ++row) {
      if (row < own.rows) scores[row] = fmaf(queries[row * width() + d], key, scores[row]);
    }
  }

  // of_rows: the largest score of each row, its sink among them.
  __device__ void FindLargest() {
    float largest[kRows], scores[kRows];
    MOED_UNROLL
    for (int row = 0; row < kRows; ++row) largest[row] = -INFINITY;
    for (int position = begin() + static_cast<int>(threadIdx.x); position < end(); position += blockDim.x) {
      Score(position, scores);
      MOED_UNROLL
      for (int row = 0; row < kRows; ++row) {
        if (row < own.rows && Sees(row, position) && scores[row] > largest[row]) largest[row] = scores[row];
      }
    }
    LargestOfThreads(largest, [&](int row, float all) { of_rows[row] = all > Sink(a, own, row) ? all : Sink(a, own, row); });
    __syncthreads();
  }
  // done(row, the largest of all threads'), by a thread each.
  template <class Done>
  __device__ void LargestOfThreads(const float (&largest)[kRows], const Done& done) const {
    MOED_UNROLL
    for (int row = 0; row < kRows; ++row) {
      if (row >= own.rows) continue;
      const float of_warp = LargestOfWarp(largest[row]);
      if (threadIdx.x % 32 == 0) partials[static_cast<int>(threadIdx.x / 32) * kRows + row] = of_warp;
    }
    __syncthreads();
    const int row = threadIdx.x;
    if (row >= own.rows) return;
    float all = -INFINITY;
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) {
      const float of_warp = partials[static_cast<int>(warp) * kRows + row];
      all = of_warp > all ? of_warp : all;
    }
    done(row, all);
  }

  // Of the positions from `first` on.
  __device__ void MakeExponentials(int first) {
    float scores[kRows];
    for (int i = threadIdx.x; i < kSumTokens; i += blockDim.x) {
      const int position = first + i;
      if (position < begin() || position >= end()) continue;
      Score(position, scores);
      MOED_UNROLL
      for (int row = 0; row < kRows; ++row) {
        if (row < own.rows && Sees(row, position)) exponentials[row * kSumTokens + i] = Exp(scores[row] - of_rows[row]);
      }
    }
  }

  // Position t into partial sum t mod 8, which thread 8 row + t mod 8 keeps.
  __device__ float AddPartial(int first, float partial) const {
    const int row = threadIdx.x / kPartialSums;
    if (row >= own.rows) return partial;
    for (int i = threadIdx.x % kPartialSums; i < kSumTokens; i += kPartialSums) {
      if (Sees(row, first + i)) partial += exponentials[row * kSumTokens + i];
    }
    return partial;
  }

  // The weighted values of positions [first, first + kSumTokens), a thread for each column: done(row, column, sum).
  template <class Done>
  __device__ void SumValues(int first, const Done& done) const {
    const int from = max(first, begin()), to = min(first + kSumTokens, end());
    for (int d = threadIdx.x; d < a.dims; d += blockDim.x) {
      float sums[kRows];
      MOED_UNROLL
      for (int row = 0; row < kRows; ++row) sums[row] = 0;
      for (int t = from; t < to; ++t) {
        const Global<const unsigned char> values = Page(t) + own.value_bytes + t % a.page_tokens * a.row_bytes;
        const float value = KvNumber<kFormat>(values, a.dims, 1, 0, d);
        MOED_UNROLL
        for (int row = 0; row < kRows; ++row) {
          if (row < own.rows && Sees(row, t)) sums[row] = fmaf(exponentials[row * kSumTokens + t - first], value, sums[row]);
        }
      }
      MOED_UNROLL
      for (int row = 0; row < kRows; ++row) {
        if (row < own.rows) done(row, d, sums[row]);
      }
    }
  }
  // The row's sums in ascending order, where its output goes.
  __device__ void Join(int row, int d, int first, float sum) const {
    const Global<float> output = Global<float>(a.output) + own.query(row) * a.dims + d;
    const int row_first = own.first(row, a.window);
    if (row_first >= first + kSumTokens || own.length(row) <= first) return;
    *output = row_first >= first ? sum : *output + sum;
  }

  __device__ void Divide(float partial) {
    if (threadIdx.x < kRows * kPartialSums) partials[threadIdx.x] = partial;
    __syncthreads();
    for (int row = 0; row < own.rows; ++row) {
      const float sink = Sink(a, own, row), sum = SumOfPartials(partials + row * kPartialSums);
      const float total = sink == kNoSink ? sum : sum + Exp(sink - of_rows[row]);
      const Global<float> output = Global<float>(a.output) + own.query(row) * a.dims;
      for (int d = threadIdx.x; d < a.dims; d += blockDim.x) output[d] = output[d] / total;
    }
  }
};

template <KvFormat kFormat, bool kLatent>
__global__ void Attention(cuda::AttentionOperation a) {
  JoinLaunches();
  const Shared<float> exponentials = SharedMemory<float>(), of_rows = exponentials + kRows * kSumTokens,
                      partials = of_rows + kRows, queries = partials + kRows * kPartialSums;
  AttentionOfBlock<kFormat, kLatent> block{
      a,       RowsOf(a, static_cast<int>(blockIdx.x), static_cast<int>(blockIdx.y), static_cast<int>(blockIdx.z) * a.group),
      queries, exponentials,
      of_rows, partials};
  block.StageQueries();
  __syncthreads();
  block.FindLargest();
  float partial = 0;
  for (int first = block.first_sum(); first < block.end(); first += kSumTokens) {
    block.MakeExponentials(first);
    __syncthreads();
    partial = block.AddPartial(first, partial);
    block.SumValues(first, [&](int row, int d, float sum) { block.Join(row, d, first, sum); });
    __syncthreads();
  }
  block.Divide(partial);
}

template <KvFormat kFormat>
void LaunchAttentionOf(DeviceStream& stream, const LaunchShape& shape, const cuda::AttentionOperation& a) {
  if (a.rotated == nullptr) return Launch<Attention<kFormat, false>>(stream, shape, a);
  Launch<Attention<kFormat, true>>(stream, shape, a);
}

inline unsigned AttentionSharedBytes(const cuda::AttentionOperation& a) {
  const int width = a.dims + (a.rotated == nullptr ? 0 : a.rotary_dims);
  return static_cast<unsigned>(kRows * (kSumTokens + 1 + kPartialSums + width) * sizeof(float));
}

inline void LaunchWholeAttention(DeviceStream& stream, const cuda::AttentionOperation& a) {
  const LaunchShape shape = {.grid = {static_cast<unsigned>(a.count), static_cast<unsigned>(a.kv_heads),
                                      Blocks(static_cast<unsigned>(a.heads_of_kv), static_cast<unsigned>(a.group))},
                             .block = {kAttentionThreads},
                             .shared_bytes = AttentionSharedBytes(a)};
  switch (a.format) {
    case KvFormat::kF32:
      return LaunchAttentionOf<KvFormat::kF32>(stream, shape, a);
    case KvFormat::kF16:
      return LaunchAttentionOf<KvFormat::kF16>(stream, shape, a);
    case KvFormat::kQ8:
      return LaunchAttentionOf<KvFormat::kQ8>(stream, shape, a);
  }
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
