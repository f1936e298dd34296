#include "core/kernels/cuda_attention.h"

#include <algorithm>

#include "core/base/check.h"
#include "core/kernels/cuda_kernel_set.h"

namespace moed::cuda {
namespace {

// Blocks of threads with all positions of their rows, for each multiprocessor. Only where there are more, which is in long
// prompts, positions need not be spread over others as well.
constexpr int kFewBlocks = 8;

// The most pieces that the positions of one tile lie in.
int64_t PiecesOfTile(const AttentionOperation& operation, int longest) {
  const int64_t all = CeilDiv(longest, kAttentionPiece);
  const int64_t windows = int64_t{operation.window} + kAttentionRowsOfBlock - 1;  // of its rows together
  return operation.window == 0 ? all : std::min(all, 1 + CeilDiv(windows - 1, kAttentionPiece));
}

// None where `scores` does not hold what several blocks of threads tell each other.
AttentionPieces PiecesIn(std::span<float> scores, const AttentionOperation& operation, int64_t rows, int longest) {
  const int64_t count = PiecesOfTile(operation, longest);
  const PieceFloats floats(rows, count, operation.dims);
  if (static_cast<int64_t>(scores.size()) < floats.all()) return {};
  return {.count = static_cast<int>(count),
          .scores = scores.data(),
          .largest = scores.data() + floats.scores,
          .sums = scores.data() + floats.scores + floats.largest};
}

// Fills in what the runs say.
AttentionOperation WithRuns(AttentionOperation operation, const AttendedRuns& attended) {
  const int heads = operation.heads / operation.kv_heads;
  operation.heads_of_kv = heads;
  operation.group = std::min(heads, kAttentionRowsOfBlock);
  const int together = heads > operation.group ? 1 : kAttentionRowsOfBlock / operation.group;  // tokens
  for (const KvRun& run : attended.runs) operation.count += static_cast<int>(CeilDiv(run.tokens, together));
  const auto tiles = attended.descriptions.Take<AttentionTile>(static_cast<size_t>(operation.count));
  AttentionTile* next = tiles.host;
  int64_t first_token = 0;
  int longest = 0;
  for (const KvRun& run : attended.runs) {
    longest = std::max(longest, run.seen > 0 ? run.seen : run.position + run.tokens);
    const std::byte* const* const pages = attended.descriptions.Copy(
        std::span<const std::byte* const>(const_cast<const std::byte* const*>(run.pages.data()), run.pages.size()));
    for (int token = 0; token < run.tokens; token += together) {
      *next++ = {.pages = reinterpret_cast<const unsigned char* const*>(pages),
                 .first_token = first_token + token,
                 .position = run.position + token,
                 .tokens = std::min(together, run.tokens - token),
                 .first = run.first,
                 .seen = run.seen};
    }
    first_token += run.tokens;
  }
  operation.tiles = tiles.device;
  const int64_t blocks = int64_t{operation.count} * operation.kv_heads * CeilDiv(heads, operation.group);
  if (blocks < kFewBlocks * attended.multiprocessors) {
    operation.pieces = PiecesIn(attended.scores, operation, first_token * operation.heads, longest);
  }
  return operation;
}

}  // namespace

const KvPlace* PlacesOf(std::span<const KvRun> runs, int page_tokens, Descriptions& descriptions, int& rows) {
  rows = 0;
  for (const KvRun& run : runs) rows += run.tokens;
  const auto places = descriptions.Take<KvPlace>(static_cast<size_t>(rows));
  KvPlace* next = places.host;
  for (const KvRun& run : runs) {
    for (int position = run.position; position < run.position + run.tokens; ++position) {
      *next++ = {reinterpret_cast<unsigned char*>(run.pages[position / page_tokens]), position % page_tokens, position};
    }
  }
  return places.device;
}

HeadsOperation HeadsOf(const AttentionShape& shape, const HeadTransform& transform, std::span<const KvRun> runs, float* query,
                       const float* keys, const float* values, Descriptions& descriptions) {
  const int64_t row_bytes = KvRowBytes(shape.kv_format, shape.head_dim);
  HeadsOperation operation = {.format = shape.kv_format,
                              .query = query,
                              .keys = keys,
                              .values = values,
                              .query_norm = transform.query_norm,
                              .key_norm = transform.key_norm,
                              .inv_freq = transform.inv_freq,
                              .head_bytes = row_bytes * shape.page_tokens,
                              .row_bytes = row_bytes,
                              .slots = shape.page_tokens,
                              .heads = shape.heads,
                              .kv_heads = shape.kv_heads,
                              .dims = shape.head_dim,
                              .rotary_dims = transform.rotary_dims,
                              .eps = transform.eps,
                              .norm_last = transform.norm_last,
                              .interleaved = transform.interleaved,
                              .magnitude = transform.magnitude};
  operation.places = PlacesOf(runs, shape.page_tokens, descriptions, operation.rows);
  return operation;
}

AttentionOperation AttentionOf(const AttentionShape& shape, const float* query, float* output, const AttendedRuns& runs) {
  MOED_CHECK(shape.head_dim <= kMostHeadDim);
  const int64_t row_bytes = KvRowBytes(shape.kv_format, shape.head_dim);
  return WithRuns({.format = shape.kv_format,
                   .query = query,
                   .sinks = shape.sinks,
                   .bias = shape.bias,
                   .output = output,
                   .row_bytes = row_bytes,
                   .head_bytes = row_bytes * shape.page_tokens,
                   .heads = shape.heads,
                   .kv_heads = shape.kv_heads,
                   .dims = shape.head_dim,
                   .page_tokens = shape.page_tokens,
                   .window = shape.window,
                   .scale = shape.scale},
                  runs);
}

AttentionOperation AttentionOf(const LatentShape& shape, const float* query, const float* rotated, int64_t rotated_stride,
                               float* output, const AttendedRuns& runs) {
  MOED_CHECK(shape.rank + shape.rotary_dims <= kMostHeadDim);
  return WithRuns({.format = shape.kv_format,
                   .query = query,
                   .rotated = rotated,
                   .output = output,
                   .rotated_stride = rotated_stride,
                   .row_bytes = LatentRowBytes(shape.kv_format, shape.rank, shape.rotary_dims),
                   .head_bytes = KvRowBytes(shape.kv_format, shape.rank),
                   .heads = shape.heads,
                   .kv_heads = 1,
                   .dims = shape.rank,
                   .rotary_dims = shape.rotary_dims,
                   .page_tokens = shape.page_tokens,
                   .scale = shape.scale},
                  runs);
}

}  // namespace moed::cuda
