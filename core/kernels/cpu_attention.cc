#include "core/kernels/cpu_attention.h"

#include <algorithm>
#include <atomic>

#include "core/base/check.h"
#include "core/quant/format.h"

namespace moed {
namespace {

constexpr int64_t kLeastWork = 8192;            // multiply-adds or elements worth waking another thread for
constexpr int kScoresTogether = 16;             // a row's scores take a multiple of this many floats
constexpr int kFewestRows = 6;                  // whose scores have room whatever their length
constexpr int64_t kScratchOfThread = 24 << 10;  // floats: as many rows up to kAttentionRows as fit in

int64_t ScoreStride(int length) { return CeilDiv(length, kScoresTogether) * kScoresTogether; }

// Where the heads of a page begin, in bytes: the keys of each, then the values of each.
struct PageLayout {
  explicit PageLayout(const AttentionShape& shape)
      : row_bytes(KvRowBytes(shape.kv_format, shape.head_dim)),
        head_bytes(shape.page_tokens * row_bytes),
        kv_heads(shape.kv_heads) {
    MOED_CHECK(shape.page_tokens == 16 || shape.page_tokens == 32 || shape.page_tokens == 64);
    MOED_CHECK(shape.head_dim <= kMostHeadDim);
  }
  int64_t keys(int head) const { return head * head_bytes; }
  int64_t values(int head) const { return (kv_heads + head) * head_bytes; }
  int64_t row_bytes, head_bytes;
  int kv_heads;
};

void CheckLatentShape(const LatentShape& shape) {
  MOED_CHECK(shape.page_tokens == 16 || shape.page_tokens == 32 || shape.page_tokens == 64);
  MOED_CHECK(shape.rank + shape.rotary_dims <= kMostHeadDim);
}

// A range of the rows of one run that share a kv head. Row r is head r % group of token r / group.
struct RowRange {
  const KvRun* run;
  int64_t first_token;  // of the run, among all
  int kv_head, first_row, rows;
};

// How many positions there are up to the last one that the run's row `row` sees.
int SeenBy(const KvRun& run, int row) { return run.seen > 0 ? run.seen : run.position + row + 1; }

// Where the sum begins that a row of `length` positions sees first: its positions are counted from there on. Whole pages lie
// before.
int FirstSum(const AttentionShape& shape, const KvRun& run, int length) {
  static_assert(kAttentionSumTokens % kKvPageTokens == 0);
  const int of_window = shape.window == 0 || shape.window >= length ? 0 : length - shape.window;
  return std::max(run.first, of_window) / kAttentionSumTokens * kAttentionSumTokens;
}

// All ranges of all runs: run after run, kv head after kv head, so that the keys and values of one stay near the processor.
class RowRanges {
 public:
  RowRanges(int heads, int kv_heads, std::span<const KvRun> runs, int most)
      : kv_heads_(kv_heads), group_(heads / kv_heads), runs_(runs), most_(most) {}

  int count() const {
    int count = 0;
    for (const KvRun& run : runs_) count += kv_heads_ * RangesOf(run);
    return count;
  }
  RowRange operator[](int index) const {
    const KvRun* run = runs_.data();
    int64_t first_token = 0;
    for (; index >= kv_heads_ * RangesOf(*run); ++run) index -= kv_heads_ * RangesOf(*run), first_token += run->tokens;
    const int ranges = RangesOf(*run);
    const auto begin = [&](int64_t range) { return static_cast<int>(range * RowsOf(*run) / ranges); };
    const int range = index % ranges;
    return {run, first_token, index / ranges, begin(range), begin(range + 1) - begin(range)};
  }

 private:
  int RowsOf(const KvRun& run) const { return run.tokens * group_; }
  int RangesOf(const KvRun& run) const { return static_cast<int>(CeilDiv(RowsOf(run), most_)); }

  int kv_heads_, group_;
  std::span<const KvRun> runs_;
  int most_;  // rows of a range
};

// Each iteration of the loop owns a slice of `scores` and takes ranges of rows until none is left: body(range, its scores).
// most_rows: of a range; fewer where that gives every thread one, or where the scores have less room.
template <class Body>
void ForRanges(Executor& executor, int heads, int kv_heads, std::span<const KvRun> runs, int64_t work, int most_rows,
               int64_t score_stride, std::span<float> scores, const Body& body) {
  if (work == 0) return;
  const int slices = static_cast<int>(std::min<int64_t>(executor.threads(), CeilDiv(work, kLeastWork)));
  const int64_t slice = static_cast<int64_t>(scores.size()) / slices;
  int most = static_cast<int>(std::min<int64_t>(most_rows, slice / score_stride));
  MOED_CHECK(most >= 1);
  while (most > 1 && RowRanges(heads, kv_heads, runs, most).count() < slices) most = (most + 1) / 2;

  const RowRanges ranges(heads, kv_heads, runs, most);
  const int count = ranges.count();
  std::atomic<int> next{0};
  executor.ParallelFor(slices, 1, [&](int begin, int) {
    for (int index; (index = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
      body(ranges[index], scores.data() + begin * slice);
    }
  });
}

int64_t TokensOf(std::span<const KvRun> runs) {
  int64_t tokens = 0;
  for (const KvRun& run : runs) tokens += run.tokens;
  return tokens;
}

// What numbers of the heads, `each` of them, are those of the heads from `first` on; null where there are none.
const float* OfHeads(const float* numbers, int first, int each) {
  return numbers == nullptr ? nullptr : numbers + int64_t{first} * each;
}

const unsigned char* const* PagesOf(const KvRun& run) { return reinterpret_cast<const unsigned char* const*>(run.pages.data()); }

}  // namespace

// The row of a key is made beside its page, then spread over it.
void StoreKvOnCpu(const KernelTable& kernels, Executor& executor, const AttentionShape& shape, std::span<const KvRun> runs,
                  const float* keys, const float* values) {
  const PageLayout layout(shape);
  const KvFormat format = shape.kv_format;
  const auto store_row = kernels.store_kv_row[static_cast<int>(format)];
  const auto store = [&](const KvRun& run, int64_t first_token, int head) {
    alignas(64) std::byte key[kMostHeadDim * sizeof(float)];
    for (int i = 0; i < run.tokens; ++i) {
      const int64_t from = ((first_token + i) * shape.kv_heads + head) * shape.head_dim;
      std::byte* const page = run.pages[(run.position + i) / shape.page_tokens];
      const int slot = (run.position + i) % shape.page_tokens;
      store_row(keys + from, shape.head_dim, key);
      PlaceKvKey(format, key, shape.head_dim, shape.page_tokens, slot, page + layout.keys(head));
      store_row(values + from, shape.head_dim, page + layout.values(head) + slot * layout.row_bytes);
    }
  };
  const int64_t elements = std::max<int64_t>(2 * TokensOf(runs) * shape.head_dim, 1);
  executor.ParallelFor(shape.kv_heads, static_cast<int>(CeilDiv(kLeastWork, elements)), [&](int begin, int end) {
    int64_t first_token = 0;
    for (const KvRun& run : runs) {
      for (int head = begin; head < end; ++head) store(run, first_token, head);
      first_token += run.tokens;
    }
  });
}

void AttentionOnCpu(const KernelTable& kernels, Executor& executor, const AttentionShape& shape, std::span<const KvRun> runs,
                    const float* query, float* output, std::span<float> scores) {
  const PageLayout layout(shape);
  int longest = 0;  // as many positions as a range of any size sees
  int64_t work = 0;
  for (const KvRun& run : runs) {
    const int length = SeenBy(run, run.tokens - 1);
    const int window = shape.window > 0 ? std::min(shape.window, length) : length;
    longest = std::max(longest, std::min<int>(length, window + kAttentionRows + kAttentionSumTokens));
    work += int64_t{2} * run.tokens * window * shape.heads * shape.head_dim;
  }
  const int group = shape.heads / shape.kv_heads;
  const int64_t token_stride = int64_t{shape.heads} * shape.head_dim;
  const auto attend = [&](const RowRange& range, float* own_scores) {
    const KvRun& run = *range.run;
    const int first_sum = FirstSum(shape, run, SeenBy(run, range.first_row / group));
    const int64_t first = range.first_token * token_stride + int64_t{range.kv_head} * group * shape.head_dim;
    kernels.attention[static_cast<int>(shape.kv_format)](
        {.query = query + first,
         .output = output + first,
         .token_stride = token_stride,
         .heads = group,
         .first_row = range.first_row,
         .rows = range.rows,
         .pages = PagesOf(run) + first_sum / shape.page_tokens,
         .keys = layout.keys(range.kv_head),
         .values = layout.values(range.kv_head),
         .page_tokens = shape.page_tokens,
         .length = SeenBy(run, 0) - first_sum,
         .grows = run.seen == 0,
         .first = std::max(run.first - first_sum, 0),
         .window = shape.window,
         .head_dim = shape.head_dim,
         .scale = shape.scale,
         .sinks = OfHeads(shape.sinks, range.kv_head * group, 1),
         .bias = OfHeads(shape.bias.table, range.kv_head * group, 2 * shape.bias.reach + 1),
         .bias_reach = shape.bias.reach,
         .position = run.position - first_sum,
         .scores = own_scores,
         .score_stride = ScoreStride(longest)});
  };
  ForRanges(executor, shape.heads, shape.kv_heads, runs, work, kAttentionRows, ScoreStride(longest), scores, attend);
}

size_t ComputeBackend::AttentionScratchFloats(int threads, int longest) {
  const int64_t row = ScoreStride(longest);
  return threads * std::clamp(kScratchOfThread, kFewestRows * row, kAttentionRows * row);
}

void StoreLatentOnCpu(const KernelTable& kernels, Executor& executor, const LatentShape& shape, std::span<const KvRun> runs,
                      const float* latents, const float* rotated) {
  CheckLatentShape(shape);
  const auto store_row = kernels.store_kv_row[static_cast<int>(shape.kv_format)];
  const int64_t latent_bytes = KvRowBytes(shape.kv_format, shape.rank);
  const int64_t row_bytes = LatentRowBytes(shape.kv_format, shape.rank, shape.rotary_dims);
  const auto store = [&](const KvRun& run, int64_t row, int position) {
    std::byte* const to = run.pages[position / shape.page_tokens] + position % shape.page_tokens * row_bytes;
    store_row(latents + row * shape.rank, shape.rank, to);
    store_row(rotated + row * shape.rotary_dims, shape.rotary_dims, to + latent_bytes);
  };
  const int grain = static_cast<int>(CeilDiv(kLeastWork, int64_t{shape.rank} + shape.rotary_dims));
  executor.ParallelFor(static_cast<int>(TokensOf(runs)), grain, [&](int begin, int end) {
    int first = 0;
    for (const KvRun& run : runs) {
      for (int row = std::max(begin, first); row < std::min(end, first + run.tokens); ++row) {
        store(run, row, run.position + row - first);
      }
      first += run.tokens;
    }
  });
}

namespace {

// All of one stage of some rows.
void ComputeStage(const KernelTable& kernels, KvFormat format, LatentArguments arguments, LatentStage stage, int count) {
  arguments.stage = stage;
  arguments.begin = 0;
  arguments.end = count;
  kernels.attend_latent[static_cast<int>(format)](arguments);
}

// The same by all threads: pages of positions, rows, groups of columns.
void ShareStage(const KernelTable& kernels, Executor& executor, KvFormat format, const LatentArguments& arguments,
                LatentStage stage, int count, int together, int64_t work_of_all) {
  const int parts = static_cast<int>(CeilDiv(count, together));
  const int grain = static_cast<int>(std::clamp<int64_t>(kLeastWork * parts / std::max<int64_t>(work_of_all, 1), 1, parts));
  executor.ParallelFor(parts, grain, [&](int begin, int end) {
    LatentArguments part = arguments;
    part.stage = stage;
    part.begin = begin * together;
    part.end = std::min(end * together, count);
    kernels.attend_latent[static_cast<int>(format)](part);
  });
}

}  // namespace

// Ranges of rows are computed by a thread each, with scores of its own. Where there are fewer ranges than threads, or not that
// much room, all threads compute one range after the other: rows of which a vector has a lane each are not parted for them.
void AttendLatentOnCpu(const KernelTable& kernels, Executor& executor, const LatentShape& shape, std::span<const KvRun> runs,
                       const float* query, const float* rotated, int64_t rotated_stride, float* output, std::span<float> scores) {
  CheckLatentShape(shape);
  int longest = 0;
  int64_t work = 0;
  for (const KvRun& run : runs) {
    const int length = run.position + run.tokens;
    longest = std::max(longest, length);
    work += int64_t{2} * run.tokens * length * shape.heads * shape.rank;
  }
  if (work == 0) return;
  const int64_t token_stride = int64_t{shape.heads} * shape.rank, stride = ScoreStride(longest);
  const auto arguments_of = [&](const RowRange& range, float* own_scores, float* totals) {
    return LatentArguments{.latents = {.query = query + range.first_token * token_stride,
                                       .output = output + range.first_token * token_stride,
                                       .token_stride = token_stride,
                                       .heads = shape.heads,
                                       .first_row = range.first_row,
                                       .rows = range.rows,
                                       .pages = PagesOf(*range.run),
                                       .keys = 0,
                                       .values = 0,
                                       .page_tokens = shape.page_tokens,
                                       .length = range.run->position + 1,
                                       .grows = true,
                                       .first = 0,
                                       .window = 0,
                                       .head_dim = shape.rank,
                                       .scale = shape.scale,
                                       .sinks = nullptr,
                                       .bias = nullptr,
                                       .bias_reach = 0,
                                       .position = range.run->position,
                                       .scores = own_scores,
                                       .score_stride = stride},
                           .rotated = rotated + range.first_token * shape.heads * rotated_stride,
                           .rotated_stride = rotated_stride,
                           .rotary_dims = shape.rotary_dims,
                           .totals = totals,
                           .stage = LatentStage::kScores,
                           .begin = 0,
                           .end = 0};
  };
  const auto seen_by = [&](const RowRange& range) {
    return SeenBy(*range.run, (range.first_row + range.rows - 1) / shape.heads);
  };
  const RowRanges ranges(shape.heads, 1, runs, kLatentRows);
  const bool room = static_cast<int64_t>(scores.size()) >= executor.threads() * kLatentRows * stride;
  if (room && ranges.count() >= executor.threads()) {
    ForRanges(executor, shape.heads, 1, runs, work, kLatentRows, stride, scores, [&](const RowRange& range, float* own_scores) {
      float totals[kLatentRows];
      const LatentArguments arguments = arguments_of(range, own_scores, totals);
      ComputeStage(kernels, shape.kv_format, arguments, LatentStage::kScores, seen_by(range));
      ComputeStage(kernels, shape.kv_format, arguments, LatentStage::kWeights, range.rows);
      ComputeStage(kernels, shape.kv_format, arguments, LatentStage::kSums, shape.rank);
    });
    return;
  }
  MOED_CHECK(static_cast<int64_t>(scores.size()) >= kLatentRows * stride);
  for (int i = 0; i < ranges.count(); ++i) {
    const RowRange range = ranges[i];
    float totals[kLatentRows];
    const LatentArguments arguments = arguments_of(range, scores.data(), totals);
    const int64_t weights = int64_t{range.rows} * seen_by(range), products = weights * shape.rank;
    ShareStage(kernels, executor, shape.kv_format, arguments, LatentStage::kScores, seen_by(range), shape.page_tokens, products);
    ShareStage(kernels, executor, shape.kv_format, arguments, LatentStage::kWeights, range.rows, 1, weights);
    ShareStage(kernels, executor, shape.kv_format, arguments, LatentStage::kSums, shape.rank, kLatentColumns, products);
  }
}

size_t ComputeBackend::LatentScratchFloats(int threads, int longest) {
  const int64_t rows = kLatentRows * ScoreStride(longest);
  return static_cast<size_t>(std::max(rows, threads * std::min(kScratchOfThread, rows)));
}

}  // namespace moed
