// Attention where the positions of a row are spread over blocks of threads: scores of 32 positions, and the largest of them;
// then, of 256 positions and 16 columns, the exponentials and the weighted values; then, a block for each query row, their sums
// in order. Where a row has only 256 positions the second is the last. The same operations in the same order as where one block
// takes all positions.
//
// What a thread needs of keys and values it loads into registers before it stores the first into shared memory: the loads are on
// their way together. Positions and columns that are not there are the nearest that is, so that no load has a condition.
#pragma once

#include "core/kernels/device/attention.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

constexpr int kSegment = cuda::kAttentionSegment, kSegments = kSumTokens / kSegment;
constexpr unsigned kPieceThreads = 32 * kRows;  // scores: a warp for each row, a lane for each position
constexpr int kAhead = 8;                       // steps of a sum whose numbers are read at once

// What a block of threads attends of a tile, in which its positions begin with piece `base`. blockIdx.z is the tile, blockIdx.y
// the kv head and which heads of it.
struct PieceRows {
  AttentionRows own;
  int begin, end;  // positions that some row sees
  int base;

  __device__ explicit PieceRows(const cuda::AttentionOperation& a)
      : own(Rows(a)), begin(own.begin(a.window)), end(own.end()), base(begin / kSumTokens) {}
  __device__ int Nearest(int position) const { return max(begin, min(end - 1, position)); }
  // Segments are counted from those of `base` on.
  __device__ int first_segment() const { return begin / kSegment - base * kSegments; }
  __device__ int end_segment() const { return (end - 1) / kSegment + 1 - base * kSegments; }

 private:
  static __device__ AttentionRows Rows(const cuda::AttentionOperation& a) {
    const int number = blockIdx.y, group = number < a.kv_heads ? 0 : number / a.kv_heads;
    return RowsOf(a, static_cast<int>(blockIdx.z), number - group * a.kv_heads, group * a.group);
  }
};

// A row of them; positions are counted from `from`.
struct PieceRow {
  int64_t query;  // among all
  int first, length;

  __device__ PieceRow(const cuda::AttentionOperation& a, const AttentionRows& own, int row, int from)
      : query(own.query(row)), first(own.first(row, a.window) - from), length(own.length(row) - from) {}
  __device__ bool Sees(int position) const { return position >= first && position < length; }
};

// row[t] and what follows; t is a multiple of 4.
__device__ inline void ReadAhead(Shared<const float> row, int t, float (&numbers)[kAhead]) {
  MOED_UNROLL
  for (int i = 0; i < kAhead / 4; ++i) {
    const float4 four = Load<float4>(row, t / 4 + i);
    numbers[4 * i] = four.x, numbers[4 * i + 1] = four.y, numbers[4 * i + 2] = four.z, numbers[4 * i + 3] = four.w;
  }
}

// The keys of 32 positions and their queries, kKeyDims of each at a time.
template <KvFormat kFormat, bool kLatent>
class KeyStream {
 public:
  static constexpr int kKeyDims = 128, kStride = kSegment + 1;
  static constexpr unsigned kSharedBytes = (kKeyDims * kStride + kRows * kKeyDims) * sizeof(float);

  __device__ KeyStream(const cuda::AttentionOperation& a, const PieceRows& rows, int first)
      : a_(a), rows_(rows), first_(first), width_(a.dims + (kLatent ? a.rotary_dims : 0)) {}
  __device__ int width() const { return width_; }

  // Dimensions from `begin` on.
  __device__ void Fetch(int begin) {
    FetchQueries(begin);
    if constexpr (kLatent) {
      MOED_UNROLL
      for (int i = 0; i < kKeys; ++i)
        held_[i] = Latent(kPositions * warp_ + i / kLines, Within(begin + 32 * (i % kLines) + lane_));
    } else if (begin + kKeys * warp_ < width_) {
      const int position = rows_.Nearest(first_ + lane_), slot = position % a_.page_tokens;
      const Global<const unsigned char> keys = Page(position) + rows_.own.head_bytes;
      MOED_UNROLL
      for (int i = 0; i < kKeys; ++i) {
        held_[i] = LoadKv<kFormat>(keys, a_.dims, a_.page_tokens, slot, Within(begin + kKeys * warp_ + i));
      }
    }
  }
  // What was fetched last, as (dimensions, positions) and (rows, dimensions).
  __device__ void Put() const {
    MOED_UNROLL
    for (int i = 0; i < kLines; ++i) queries()[kKeyDims * warp_ + 32 * i + lane_] = query_[i];
    MOED_UNROLL
    for (int i = 0; i < kKeys; ++i) {
      const int dim = kLatent ? 32 * (i % kLines) + lane_ : kKeys * warp_ + i;
      const int position = kLatent ? kPositions * warp_ + i / kLines : lane_;
      keys()[kStride * dim + position] = WidenKv<kFormat>(held_[i]);
    }
  }
  // The score of the warp's row and the lane's position goes on.
  __device__ float AddProducts(int begin, float score) const {
    const int count = min(kKeyDims, width_ - begin);
    int d = 0;
    for (; d + kAhead <= count; d += kAhead) {
      float key[kAhead], query[kAhead];
      MOED_UNROLL
      for (int i = 0; i < kAhead; ++i) key[i] = Key(d + i);
      ReadAhead(queries() + kKeyDims * warp_, d, query);
      MOED_UNROLL
      for (int i = 0; i < kAhead; ++i) score = fmaf(query[i], key[i], score);
    }
    for (; d < count; ++d) score = fmaf(queries()[kKeyDims * warp_ + d], Key(d), score);
    return score;
  }

 private:
  static constexpr int kKeys = kKeyDims / kRows;       // that a thread brings
  static constexpr int kLines = kKeyDims / 32;         // numbers of a query or of a latent that a lane brings
  static constexpr int kPositions = kSegment / kRows;  // whose latents a warp brings
  static_assert(kKeys == kLines * kPositions);

  __device__ Shared<float> keys() const { return SharedMemory<float>(); }
  __device__ Shared<float> queries() const { return keys() + kKeyDims * kStride; }
  __device__ float Key(int d) const { return keys()[kStride * d + lane_]; }
  __device__ int Within(int d) const { return min(d, width_ - 1); }
  __device__ Global<const unsigned char> Page(int position) const { return PageOf(a_, rows_.own, position); }

  __device__ void FetchQueries(int begin) {
    if (warp_ >= rows_.own.rows) return;
    const int64_t row = rows_.own.query(warp_);
    const Global<const float> query = Global<const float>(a_.query) + row * a_.dims;
    MOED_UNROLL
    for (int i = 0; i < kLines; ++i) {
      const int d = Within(begin + 32 * i + lane_);
      if constexpr (kLatent) {
        const Global<const float> rotated = Global<const float>(a_.rotated) + row * a_.rotated_stride;
        query_[i] = d < a_.dims ? query[d] : rotated[d - a_.dims];
      } else {
        query_[i] = query[d];
      }
    }
  }
  __device__ KvStored<kFormat> Latent(int index, int d) const {
    const int position = rows_.Nearest(first_ + index);
    const Global<const unsigned char> latent = Page(position) + position % a_.page_tokens * a_.row_bytes;
    const bool rotated = d >= a_.dims;
    return LoadKv<kFormat>(latent + (rotated ? a_.head_bytes : 0), rotated ? a_.rotary_dims : a_.dims, 1, 0,
                           rotated ? d - a_.dims : d);
  }

  const cuda::AttentionOperation& a_;
  const PieceRows& rows_;
  const int first_, width_;
  const int warp_ = static_cast<int>(threadIdx.x / 32), lane_ = static_cast<int>(threadIdx.x % 32);
  KvStored<kFormat> held_[kKeys] = {};
  float query_[kLines] = {};
};

template <KvFormat kFormat, bool kLatent>
__global__ void AttentionScores(cuda::AttentionOperation a) {
  JoinLaunches();
  const int segments = a.pieces.count * kSegments, segment = static_cast<int>(blockIdx.x);
  const PieceRows rows(a);
  if (segment < rows.first_segment() || segment >= rows.end_segment()) return;
  const int row = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int first = rows.base * kSumTokens + segment * kSegment;
  KeyStream<kFormat, kLatent> stream(a, rows, first);
  float score = 0;
  stream.Fetch(0);
  for (int dims = 0; dims < stream.width(); dims += stream.kKeyDims) {
    stream.Put();
    __syncthreads();
    if (dims + stream.kKeyDims < stream.width()) stream.Fetch(dims + stream.kKeyDims);
    if (row < rows.own.rows) score = stream.AddProducts(dims, score);
    __syncthreads();
  }
  if (row >= rows.own.rows) return;
  const PieceRow of(a, rows.own, row, first);
  const bool seen = of.Sees(lane);
  score = a.scale * score;
  if (a.bias.table != nullptr) score = score + Bias(a, rows.own, row, first + lane);
  const int64_t at = of.query * segments + segment;
  if (seen) Global<float>(a.pieces.scores)[at * kSegment + lane] = score;
  const float largest = LargestOfWarp(seen && score > -INFINITY ? score : -INFINITY);
  if (lane == 0) Global<float>(a.pieces.largest)[at] = largest;
}

// Of a row and its sink; by a whole warp.
__device__ inline float LargestOfSegments(const cuda::AttentionOperation& a, const PieceRows& rows, int64_t query, float sink) {
  const Global<const float> of_segments = Global<const float>(a.pieces.largest) + query * a.pieces.count * kSegments;
  const int end = rows.end_segment();
  float all = sink;
  for (int segment = rows.first_segment() + static_cast<int>(threadIdx.x % 32); segment < end; segment += 32 * kAhead) {
    float ahead[kAhead];
    MOED_UNROLL
    for (int i = 0; i < kAhead; ++i) ahead[i] = of_segments[min(segment + 32 * i, end - 1)];
    MOED_UNROLL
    for (int i = 0; i < kAhead; ++i) all = ahead[i] > all ? ahead[i] : all;
  }
  return LargestOfWarp(all);
}

// Columns of the values of a piece, and the exponentials of its rows.
template <KvFormat kFormat>
class PieceValues {
 public:
  static constexpr int kColumns = 16;
  static constexpr unsigned kSharedBytes =
      (kColumns * (kSumTokens + 4) + kRows * (kSumTokens + 8) + kRows * kPartialSums + kRows) * sizeof(float);

  __device__ PieceValues(const cuda::AttentionOperation& a, const PieceRows& rows, int piece, int column)
      : a_(a), rows_(rows), piece_(piece), first_((rows.base + piece) * kSumTokens), column_(column) {}
  __device__ bool there() const { return first_ < rows_.end; }

  __device__ void Stage() {
    KvStored<kFormat> held[kPositions];
    const int column = thread_ % kColumns, from = thread_ / kColumns * kPositions;
    Fetch(min(column_ + column, a_.dims - 1), from, held);
    MakeExponentials();
    MOED_UNROLL
    for (int i = 0; i < kPositions; i += 4) {
      Store(values(), (column * kValueStride + from + i) / 4,
            make_float4(WidenKv<kFormat>(held[i]), WidenKv<kFormat>(held[i + 1]), WidenKv<kFormat>(held[i + 2]),
                        WidenKv<kFormat>(held[i + 3])));
    }
  }

  // By a thread for each row and column.
  __device__ float SumOfColumn(int row, int column) const {
    const PieceRow of(a_, rows_.own, row, first_);
    const int from = max(0, of.first), to = min(kSumTokens, of.length);
    const Shared<const float> of_column = values() + column * kValueStride, of_row = exponentials() + row * kExponentialStride;
    float sum = 0;
    int t = from;
    for (; t < to && t % kAhead != 0; ++t) sum = fmaf(of_row[t], of_column[t], sum);
    for (; t + kAhead <= to; t += kAhead) {
      float value[kAhead], exponential[kAhead];
      ReadAhead(of_column, t, value);
      ReadAhead(of_row, t, exponential);
      MOED_UNROLL
      for (int i = 0; i < kAhead; ++i) sum = fmaf(exponential[i], value[i], sum);
    }
    for (; t < to; ++t) sum = fmaf(of_row[t], of_column[t], sum);
    return sum;
  }

  // Of a row's only piece: position t into partial sum t mod 8, by a thread each. What a row does not see adds 0.
  __device__ void SumPartial(int row, int partial) const {
    const Shared<const float> of_row = exponentials() + row * kExponentialStride + partial;
    float sum = 0;
    for (int t = 0; t < kSumTokens; t += kAhead * kPartialSums) {
      float ahead[kAhead];
      MOED_UNROLL
      for (int i = 0; i < kAhead; ++i) ahead[i] = of_row[t + i * kPartialSums];
      MOED_UNROLL
      for (int i = 0; i < kAhead; ++i) sum = sum + ahead[i];
    }
    partials()[row * kPartialSums + partial] = sum;
  }
  __device__ float Total(int row) const { return SumOfPartials(partials() + row * kPartialSums) + sinks()[row]; }

 private:
  static constexpr int kPositions = kColumns * kSumTokens / static_cast<int>(kPieceThreads);  // of a thread: in one page
  static constexpr int kValueStride = kSumTokens + 4, kExponentialStride = kSumTokens + 8;    // so that banks differ
  static_assert(kPositions == 16);

  __device__ Shared<float> values() const { return SharedMemory<float>(); }  // (columns, positions)
  __device__ Shared<float> exponentials() const { return values() + kColumns * kValueStride; }
  __device__ Shared<float> partials() const { return exponentials() + kRows * kExponentialStride; }
  __device__ Shared<float> sinks() const { return partials() + kRows * kPartialSums; }  // their exponentials, 0 without one

  __device__ void Fetch(int column, int from, KvStored<kFormat> (&held)[kPositions]) const {
    const int nearest = Nearest(from);
    const Global<const unsigned char> first =
        PageOf(a_, rows_.own, nearest) + rows_.own.value_bytes + nearest % a_.page_tokens * a_.row_bytes;
    MOED_UNROLL
    for (int i = 0; i < kPositions; ++i) {
      held[i] = LoadKv<kFormat>(first + (Nearest(from + i) - nearest) * a_.row_bytes, a_.dims, 1, 0, column);
    }
  }
  // Within the piece.
  __device__ int Nearest(int t) const {
    return max(max(first_, rows_.begin), min(min(first_ + kSumTokens, rows_.end) - 1, first_ + t));
  }

  // A warp for each row.
  __device__ void MakeExponentials() const {
    const int row = thread_ / 32, lane = thread_ % 32;
    if (row >= rows_.own.rows) return;
    const PieceRow of(a_, rows_.own, row, first_);
    const Global<const float> of_row = Global<const float>(a_.pieces.scores) + (of.query * a_.pieces.count + piece_) * kSumTokens;
    float scores[kSegments];
    MOED_UNROLL
    for (int i = 0; i < kSegments; ++i) {
      const int t = 32 * i + lane;
      scores[i] = of.Sees(t) ? static_cast<float>(of_row[t]) : 0.0f;
    }
    const float sink = Sink(a_, rows_.own, row), largest = LargestOfSegments(a_, rows_, of.query, sink);
    MOED_UNROLL
    for (int i = 0; i < kSegments; ++i) {
      const int t = 32 * i + lane;
      const float exponential = Exp(scores[i] - largest);
      exponentials()[row * kExponentialStride + t] = of.Sees(t) ? exponential : 0.0f;
    }
    if (lane == 0) sinks()[row] = sink == kNoSink ? 0.0f : Exp(sink - largest);
  }
  const cuda::AttentionOperation& a_;
  const PieceRows& rows_;
  const int piece_, first_, column_;
  const int thread_ = static_cast<int>(threadIdx.x);
};

template <KvFormat kFormat>
__global__ void AttentionValues(cuda::AttentionOperation a) {
  JoinLaunches();
  using Values = PieceValues<kFormat>;
  const int part = static_cast<int>(blockIdx.x) / a.pieces.count, piece = static_cast<int>(blockIdx.x) % a.pieces.count;
  const PieceRows rows(a);
  Values values(a, rows, piece, part * Values::kColumns);
  if (!values.there()) return;
  values.Stage();
  __syncthreads();
  constexpr int kColumnThreads = kRows * Values::kColumns;
  const int thread = threadIdx.x, row = thread / Values::kColumns, column = part * Values::kColumns + thread % Values::kColumns;
  const bool sums = row < rows.own.rows && column < a.dims, only = a.pieces.count == 1;
  float sum = 0;
  if (sums) sum = values.SumOfColumn(row, thread % Values::kColumns);
  const int of_partials = thread - kColumnThreads;
  if (only && of_partials >= 0 && of_partials < rows.own.rows * kPartialSums) {
    values.SumPartial(of_partials / kPartialSums, of_partials % kPartialSums);
  }
  __syncthreads();
  if (!sums) return;
  const int64_t query = rows.own.query(row);
  if (only) {
    Global<float>(a.output)[query * a.dims + column] = sum / values.Total(row);
  } else {
    Global<float>(a.pieces.sums)[(query * a.pieces.count + piece) * a.dims + column] = sum;
  }
}

// A block of threads for each query row.
__global__ void AttentionJoin(cuda::AttentionOperation a) {
  JoinLaunches();
  const PieceRows rows(a);
  const int row = blockIdx.x;
  if (row >= rows.own.rows) return;
  const PieceRow of(a, rows.own, row, rows.base * kSumTokens);
  const int64_t query = of.query;
  const int first = of.first, length = of.length;
  const Global<const float> scores = Global<const float>(a.pieces.scores) + query * a.pieces.count * kSumTokens;
  const float sink = Sink(a, rows.own, row), largest = LargestOfSegments(a, rows, query, sink);
  const auto exponential = [&](int i) -> float { return i < first ? 0.0f : Exp(scores[i] - largest); };
  float total = LaneSum(length, exponential, [](float sum, float value) { return sum + value; });
  if (sink != kNoSink) total = total + Exp(sink - largest);
  const int begin = first / kSumTokens, end = (length - 1) / kSumTokens + 1;
  for (int d = threadIdx.x; d < a.dims; d += blockDim.x) {
    const Global<const float> sums = Global<const float>(a.pieces.sums) + query * a.pieces.count * a.dims + d;
    float sum = sums[begin * a.dims];
    for (int piece = begin + 1; piece < end; piece += kAhead) {
      float ahead[kAhead];
      MOED_UNROLL
      for (int i = 0; i < kAhead; ++i) ahead[i] = sums[min(piece + i, end - 1) * a.dims];
      MOED_UNROLL
      for (int i = 0; i < kAhead; ++i) sum = piece + i < end ? sum + ahead[i] : sum;
    }
    Global<float>(a.output)[query * a.dims + d] = sum / total;
  }
}

template <KvFormat kFormat, bool kLatent>
void LaunchPiecesOf(DeviceStream& stream, const cuda::AttentionOperation& a) {
  using Values = PieceValues<kFormat>;
  const unsigned pieces = static_cast<unsigned>(a.pieces.count), tiles = static_cast<unsigned>(a.count);
  const unsigned groups = Blocks(static_cast<unsigned>(a.heads_of_kv), static_cast<unsigned>(a.group));
  const auto launch = [&](unsigned blocks, unsigned threads, unsigned shared_bytes) -> LaunchShape {
    return {
        .grid = {blocks, static_cast<unsigned>(a.kv_heads) * groups, tiles}, .block = {threads}, .shared_bytes = shared_bytes};
  };
  using Keys = KeyStream<kFormat, kLatent>;
  Launch<AttentionScores<kFormat, kLatent>>(stream, launch(pieces * kSegments, kPieceThreads, Keys::kSharedBytes), a);
  const unsigned parts = Blocks(static_cast<unsigned>(a.dims), Values::kColumns);
  Launch<AttentionValues<kFormat>>(stream, launch(pieces * parts, kPieceThreads, Values::kSharedBytes), a);
  if (a.pieces.count > 1) Launch<AttentionJoin>(stream, launch(kRows, kAttentionThreads, kLaneSumBytes), a);
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
