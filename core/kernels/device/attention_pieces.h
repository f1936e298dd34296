// Attention where a block of threads takes 256 positions, so that a long context is many blocks: scores and the largest of each
// piece; then exponentials, and the weighted values of each piece; then, a block for each query row, their sums in order. The
// same operations in the same order as where one block takes all positions.
#pragma once

#include "core/kernels/device/attention.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

constexpr unsigned kPieceThreads = kSumTokens;

// A piece of the rows of a tile.
template <KvFormat kFormat, bool kLatent>
struct AttentionPiece {
  AttentionOfBlock<kFormat, kLatent> block;
  int piece;

  __device__ AttentionPiece(const cuda::AttentionOperation& a)
      : block{a,
              RowsOfBlock(a, static_cast<int>(blockIdx.x) / a.pieces.count),
              SharedMemory<float>() + kRows * (kSumTokens + 1 + kPartialSums),
              SharedMemory<float>(),
              SharedMemory<float>() + kRows * kSumTokens,
              SharedMemory<float>() + kRows * (kSumTokens + 1)},
        piece(static_cast<int>(blockIdx.x) % a.pieces.count) {}
  __device__ int first() const { return piece * kSumTokens; }
  __device__ int position() const { return first() + static_cast<int>(threadIdx.x); }
  __device__ bool there() const { return first() < block.end() && first() + kSumTokens > block.begin(); }
  __device__ Global<float> scores(int row) const {
    return Global<float>(block.a.pieces.scores) + block.own.query(row) * block.a.pieces.count * kSumTokens;
  }
};

// Of a row, of the pieces from that of position `begin` to that before `end`, and its sink.
__device__ inline float LargestOfPieces(const cuda::AttentionOperation& a, int64_t query, int begin, int end, float sink) {
  float all = sink;
  for (int piece = begin / kSumTokens; piece * kSumTokens < end; ++piece) {
    const float largest = Global<const float>(a.pieces.largest)[query * a.pieces.count + piece];
    all = largest > all ? largest : all;
  }
  return all;
}

template <KvFormat kFormat, bool kLatent>
__global__ void AttentionScores(cuda::AttentionOperation a) {
  AttentionPiece<kFormat, kLatent> own(a);
  if (!own.there()) return;
  own.block.StageQueries();
  __syncthreads();
  float scores[kRows], largest[kRows];
  const bool there = own.position() >= own.block.begin() && own.position() < own.block.end();
  if (there) own.block.Score(own.position(), scores);
  MOED_UNROLL
  for (int row = 0; row < kRows; ++row) {
    largest[row] = -INFINITY;
    if (!there || row >= own.block.own.rows || !own.block.Sees(row, own.position())) continue;
    own.scores(row)[own.position()] = scores[row];
    if (scores[row] > largest[row]) largest[row] = scores[row];
  }
  own.block.LargestOfThreads(largest, [&](int row, float all) {
    Global<float>(a.pieces.largest)[own.block.own.query(row) * a.pieces.count + own.piece] = all;
  });
}

template <KvFormat kFormat, bool kLatent>
__global__ void AttentionValues(cuda::AttentionOperation a) {
  AttentionPiece<kFormat, kLatent> own(a);
  if (!own.there()) return;
  const int thread = threadIdx.x;
  if (thread < own.block.own.rows) {
    own.block.of_rows[thread] =
        LargestOfPieces(a, own.block.own.query(thread), own.block.begin(), own.block.end(), own.block.Sink(thread));
  }
  __syncthreads();
  for (int row = 0; row < own.block.own.rows; ++row) {
    if (!own.block.Sees(row, own.position())) continue;
    const Global<float> at = own.scores(row) + own.position();
    const float exponential = Exp(*at - own.block.of_rows[row]);
    own.block.exponentials[row * kSumTokens + thread] = exponential;
    *at = exponential;
  }
  __syncthreads();
  own.block.SumValues(own.first(), [&](int row, int d, float sum) {
    Global<float>(a.pieces.sums)[(own.block.own.query(row) * a.pieces.count + own.piece) * a.dims + d] = sum;
  });
}

// A block of threads for each query row.
__global__ void AttentionJoin(cuda::AttentionOperation a) {
  const AttentionRows rows = RowsOfBlock(a, static_cast<int>(blockIdx.x) / kRows);
  const int row = static_cast<int>(blockIdx.x) % kRows;
  if (row >= rows.rows) return;
  const int64_t query = rows.query(row);
  const int first = rows.first(row, a.window), length = rows.length(row);
  const int begin = first / kSumTokens * kSumTokens;
  const Global<const float> exponentials = Global<const float>(a.pieces.scores) + query * a.pieces.count * kSumTokens;
  const auto exponential = [&](int i) -> float { return begin + i < first ? 0.0f : exponentials[begin + i]; };
  float total = LaneSum(length - begin, exponential, [](float sum, float value) { return sum + value; });
  const float sink = a.sinks == nullptr ? kNoSink : Global<const float>(a.sinks)[rows.head(row)];
  if (sink != kNoSink)
    total = total + Exp(sink - LargestOfPieces(a, query, rows.first(0, a.window), rows.length(rows.rows - 1), sink));
  for (int d = threadIdx.x; d < a.dims; d += blockDim.x) {
    const Global<const float> sums = Global<const float>(a.pieces.sums) + query * a.pieces.count * a.dims + d;
    float sum = sums[begin / kSumTokens * a.dims];
    for (int piece = begin / kSumTokens + 1; piece * kSumTokens < length; ++piece) sum = sum + sums[piece * a.dims];
    Global<float>(a.output)[query * a.dims + d] = sum / total;
  }
}

template <KvFormat kFormat, bool kLatent>
void LaunchPiecesOf(DeviceStream& stream, const cuda::AttentionOperation& a) {
  const unsigned tiles = static_cast<unsigned>(a.count), kv_heads = static_cast<unsigned>(a.kv_heads);
  const unsigned groups = Blocks(static_cast<unsigned>(a.heads / a.kv_heads), static_cast<unsigned>(a.group));
  const LaunchShape pieces = {.grid = {tiles * static_cast<unsigned>(a.pieces.count), kv_heads, groups},
                              .block = {kPieceThreads},
                              .shared_bytes = AttentionSharedBytes(a)};
  Launch<AttentionScores<kFormat, kLatent>>(stream, pieces, a);
  Launch<AttentionValues<kFormat, kLatent>>(stream, pieces, a);
  Launch<AttentionJoin>(
      stream, {.grid = {tiles * kRows, kv_heads, groups}, .block = {kAttentionThreads}, .shared_bytes = kLaneSumBytes}, a);
}

template <KvFormat kFormat>
void LaunchPieces(DeviceStream& stream, const cuda::AttentionOperation& a) {
  if (a.rotated == nullptr) return LaunchPiecesOf<kFormat, false>(stream, a);
  LaunchPiecesOf<kFormat, true>(stream, a);
}

inline void LaunchAttention(DeviceStream& stream, const cuda::AttentionOperation& a) {
  if (a.count == 0) return;
  if (a.pieces.count == 0) return LaunchWholeAttention(stream, a);
  switch (a.format) {
    case KvFormat::kF32:
      return LaunchPieces<KvFormat::kF32>(stream, a);
    case KvFormat::kF16:
      return LaunchPieces<KvFormat::kF16>(stream, a);
    case KvFormat::kQ8:
      return LaunchPieces<KvFormat::kQ8>(stream, a);
  }
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
