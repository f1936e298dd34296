// Rotations, keys and values, attention: bit for bit those of "scalar".
#include <algorithm>
#include <cmath>
#include <utility>

#include "tests/kernels/exactness.h"

namespace moed {

void Exactness::CompareAttention(AttentionShape shape, int positions, std::span<const KvRun> runs) {
  const size_t numbers = static_cast<size_t>(positions) * shape.kv_heads * shape.head_dim;
  const std::vector<float> keys = Gaussian(numbers, shape.head_dim), values = Gaussian(numbers, shape.head_dim + 1);
  int rows = 0, longest = 0;
  for (const KvRun& run : runs) rows += run.tokens, longest = std::max({longest, run.seen, run.position + run.tokens});
  const std::vector<float> query = Gaussian(static_cast<size_t>(rows) * shape.heads * shape.head_dim, 8);
  for (int format = 0; format < kKvFormatCount; ++format) {
    shape.kv_format = static_cast<KvFormat>(format);
    const size_t element_bytes = format == 0 ? sizeof(float) : format == 1 ? sizeof(uint16_t) : 1;
    const KvPages kept(shape, keys, values, shape.head_dim % 8 * element_bytes);
    std::vector<KvRun> placed(runs.begin(), runs.end());
    std::vector<std::vector<std::byte*>> pages(runs.size(), {kept.pages().begin(), kept.pages().end()});
    for (size_t i = 0; i < runs.size(); ++i) {
      const int of_window = shape.window > 0 ? runs[i].position + 1 - shape.window : 0;
      const int first = std::max(runs[i].first, of_window);
      std::fill_n(pages[i].begin(), first / shape.page_tokens, nullptr);
      placed[i].pages = pages[i];
    }
    Compare(query, 1, [&](ComputeBackend& backend, float* output) {
      std::vector<float> scores(ComputeBackend::AttentionScratchFloats(backend.threads(), longest));
      backend.Attention(shape, placed, query.data(), output, scores);
      EXPECT_EQ(backend.Fence(), absl::OkStatus());
    });
  }
}

// Queries stand where the output goes, as they may.
void Exactness::CompareLatent(LatentShape shape, int positions, std::span<const KvRun> runs) {
  const std::vector<float> latents = Gaussian(static_cast<size_t>(positions) * shape.rank, shape.rank),
                           keys = Gaussian(static_cast<size_t>(positions) * shape.rotary_dims, shape.rank + 1);
  int rows = 0, longest = 0;
  for (const KvRun& run : runs) rows += run.tokens, longest = std::max(longest, run.position + run.tokens);
  const int stride = shape.rotary_dims + 5;
  const size_t heads = static_cast<size_t>(rows) * shape.heads;
  const std::vector<float> query = Gaussian(heads * shape.rank, 8), rotated = Gaussian(heads * stride, 9);
  for (int format = 0; format < kKvFormatCount; ++format) {
    shape.kv_format = static_cast<KvFormat>(format);
    const size_t element_bytes = format == 0 ? sizeof(float) : format == 1 ? sizeof(uint16_t) : 1;
    const LatentPages kept(shape, latents, keys, shape.heads % 8 * element_bytes);
    std::vector<KvRun> placed(runs.begin(), runs.end());
    for (KvRun& run : placed) run.pages = kept.pages();
    Compare(query, 1, [&](ComputeBackend& backend, float* x) {
      std::vector<float> scores(ComputeBackend::LatentScratchFloats(backend.threads(), longest));
      backend.AttendLatent(shape, placed, x, rotated.data(), stride, x, scores);
      EXPECT_EQ(backend.Fence(), absl::OkStatus());
    });
  }
}

namespace {

// Whatever number of heads shares keys: fewer rows than are computed together, as many, more.
constexpr std::pair<int, int> kHeads[] = {{3, 3}, {4, 2}, {10, 2}, {13, 1}};

TEST_P(Exactness, Rope) {
  for (int rotary_dims = 2; rotary_dims <= 40; rotary_dims += 2) {
    struct Case {
      int tokens, unrotated;
      bool interleaved;
    };
    for (const Case& given : {Case{1, 0, false}, Case{5, 0, false}, Case{1, 6, false}, Case{5, 12, true}, Case{1, 0, true}}) {
      const int tokens = given.tokens;
      const int head_dim = rotary_dims + given.unrotated;
      const int heads = 3, stride = heads * head_dim + 5;
      std::vector<int32_t> positions(tokens);
      for (int t = 0; t < tokens; ++t) positions[t] = t * t * 7919 + 1;
      std::vector<float> inv_freq(rotary_dims / 2);
      for (int i = 0; i < rotary_dims / 2; ++i) inv_freq[i] = static_cast<float>(std::pow(1e6, -2.0 * i / rotary_dims));
      const RopeShape shape = {heads, head_dim, rotary_dims, given.interleaved};
      Compare(Gaussian(tokens * stride, head_dim), head_dim % 8, [&](ComputeBackend& backend, float* x) {
        backend.Rope(shape, x, tokens, stride, positions.data(), inv_freq.data());
      });
    }
  }
}

// Against the scalar operations one after the other.
TEST_P(Exactness, TransformAndStore) {
  constexpr int kRows = 5, kHeadDim = 36;
  const std::vector<float> weight = Gaussian(kHeadDim, 4), inv_freq = Gaussian(kHeadDim / 2, 5);
  const std::vector<int32_t> positions = {61, 62, 63, 64, 9};
  for (int format = 0; format < kKvFormatCount; ++format) {
    const AttentionShape shape{.heads = 6, .kv_heads = 2, .head_dim = kHeadDim, .kv_format = static_cast<KvFormat>(format)};
    for (const int rotary_dims : {0, 10, kHeadDim}) {
      for (const auto& [normed, last, interleaved] :
           {std::tuple(false, false, false), {true, false, true}, {true, true, false}}) {
        const HeadTransform transform{.query_norm = normed ? weight.data() : nullptr,
                                      .key_norm = normed ? weight.data() : nullptr,
                                      .eps = 1e-6f,
                                      .norm_last = last,
                                      .rotary_dims = rotary_dims,
                                      .interleaved = interleaved,
                                      .inv_freq = inv_freq.data(),
                                      .magnitude = last ? 1.2f : 1};
        const std::vector<float> values = Gaussian(kRows * 2 * kHeadDim, 3);
        std::vector<float> query = Gaussian(kRows * 6 * kHeadDim, 1), keys = Gaussian(kRows * 2 * kHeadDim, 2);
        std::vector<float> expected_query = query, expected_keys = keys;
        for (const auto& some : {std::pair(&expected_query, 6), {&expected_keys, 2}}) {
          std::vector<float>* const x = some.first;
          const int heads = some.second;
          const auto normalize = [&] {
            scalar_->Normalize({weight.data(), nullptr, 1e-6f}, x->data(), kRows * heads, kHeadDim, x->data());
          };
          if (normed && !last) normalize();
          const RopeShape rope = {heads, kHeadDim, rotary_dims, interleaved, transform.magnitude};
          if (rotary_dims > 0)
            scalar_->Rope(rope, x->data(), kRows, int64_t{heads} * kHeadDim, positions.data(), inv_freq.data());
          if (normed && last) normalize();
        }
        // Two sequences: one from position 61 on, one whose ninth position it is.
        const std::vector<float> nothing(128 * 2 * kHeadDim);
        const KvPages expected(shape, nothing, nothing), found(shape, nothing, nothing);
        const KvPages expected_other(shape, nothing, nothing), other(shape, nothing, nothing);
        const KvRun expected_runs[] = {{expected.pages(), 61, 4}, {expected_other.pages(), 9, 1}};
        const KvRun runs[] = {{found.pages(), 61, 4}, {other.pages(), 9, 1}};
        scalar_->StoreKv(shape, expected_runs, expected_keys.data(), values.data());
        backend_->TransformAndStore(shape, transform, runs, positions.data(), query.data(), keys.data(), values.data());
        EXPECT_EQ(backend_->Fence(), absl::OkStatus());
        EXPECT_TRUE(SameBits(query, expected_query)) << rotary_dims << ", normed " << normed << ", last " << last;
        EXPECT_EQ(found.copy(), expected.copy()) << kKvFormatNames[format] << ", " << rotary_dims;
        EXPECT_EQ(other.copy(), expected_other.copy()) << kKvFormatNames[format] << ", " << rotary_dims;
      }
    }
  }
}

TEST_P(Exactness, RopeAngles) {
  constexpr int kHeadDim = 128;
  std::vector<float> inv_freq(kHeadDim / 2);
  for (int i = 0; i < kHeadDim / 2; ++i) inv_freq[i] = static_cast<float>(std::pow(10000.0, -2.0 * i / kHeadDim));
  for (int32_t position : {0, 1, 2, 3, 100, 4095, 32768, 131071, 999999, std::numeric_limits<int32_t>::max()}) {
    Compare(Gaussian(kHeadDim, 1), 1, [&](ComputeBackend& backend, float* x) {
      backend.Rope({1, kHeadDim, kHeadDim}, x, 1, kHeadDim, &position, inv_freq.data());
    });
  }
}

// One row each, of every length up to 43.
TEST_P(Exactness, Attention) {
  constexpr int kHeadDims[] = {1, 4, 7, 8, 9, 16, 20, 32, 33, 48, 64, 72, 80, 128, 130, 256, 264};
  constexpr int kPageTokens[] = {16, 32, 64};
  std::vector<KvRun> runs;
  for (int position = 0; position < 43; ++position) runs.push_back({.position = position, .tokens = 1});
  for (size_t i = 0; i < std::size(kHeadDims); ++i) {
    for (const auto& [heads, kv_heads] : kHeads) {
      if (!Taken(11)) continue;
      CompareAttention({.heads = heads,
                        .kv_heads = kv_heads,
                        .head_dim = kHeadDims[i],
                        .page_tokens = kPageTokens[i % std::size(kPageTokens)],
                        .scale = 0.3f},
                       43, runs);
    }
  }
}

// Several rows of a sequence, from its begin and from the middle of a page on; the first goes over the border of two pages.
TEST_P(Exactness, AttentionOfBlocks) {
  const KvRun runs[] = {{.position = 0, .tokens = 70}, {.position = 37, .tokens = 5}, {.position = 64, .tokens = 7}};
  for (const auto& [head_dim, page_tokens] : {std::pair{8, 16}, {20, 64}, {33, 32}, {128, 64}}) {
    for (const auto& [heads, kv_heads] : {std::pair{3, 3}, {4, 2}, {13, 1}}) {
      if (!Taken(5)) continue;
      CompareAttention({.heads = heads, .kv_heads = kv_heads, .head_dim = head_dim, .page_tokens = page_tokens, .scale = 0.3f},
                       71, runs);
    }
  }
}

// Values wider than what rows take turns at, and not a multiple of it, over the border of two sums.
TEST_P(Exactness, AttentionOfWideHeads) {
  const KvRun runs[] = {{.position = 254, .tokens = 4}};
  for (const int head_dim : {80, 96, 130}) {
    CompareAttention({.heads = 9, .kv_heads = 1, .head_dim = head_dim, .scale = 0.3f, .window = head_dim == 80 ? 190 : 0}, 258,
                     runs);
  }
}

// Values of 256 positions are added up by themselves: around that border, where rows computed together lie on both sides of it,
// and where the sums are many. Scores of so many positions leave room for fewer rows.
TEST_P(Exactness, AttentionOverManyPositions) {
  const KvRun runs[] = {{.position = 127, .tokens = 2}, {.position = 251, .tokens = 9}, {.position = 4100, .tokens = 2}};
  for (const int head_dim : {8, 33}) {
    for (const auto& [heads, kv_heads] : {std::pair{4, 2}, {13, 1}}) {
      CompareAttention({.heads = heads, .kv_heads = kv_heads, .head_dim = head_dim, .scale = 0.3f}, 4102, runs);
    }
  }
}

// Rows that see what lies behind them, all of a run the same; runs that begin after other positions of their pages; both with
// what heads add by distance, whose reach is shorter and longer than what is seen.
TEST_P(Exactness, AttentionOfRunsWithinTheirPositions) {
  const KvRun runs[] = {{.position = 0, .tokens = 70, .seen = 70},    {.position = 64, .tokens = 9, .seen = 267},
                        {.position = 280, .tokens = 3, .seen = 31},   {.position = 40, .tokens = 30, .first = 40},
                        {.position = 270, .tokens = 5, .first = 261}, {.position = 288, .tokens = 2, .first = 3}};
  for (const auto& [head_dim, page_tokens] : {std::pair{8, 16}, {33, 32}, {64, 64}}) {
    for (const auto& [heads, kv_heads] : {std::pair{3, 3}, {4, 2}, {13, 1}}) {
      for (const int reach : {0, 1, 20, 128, 400}) {
        if (!Taken(7)) continue;
        const std::vector<float> table = Gaussian(static_cast<size_t>(heads) * (2 * reach + 1), reach + 1, 2.0f);
        CompareAttention({.heads = heads,
                          .kv_heads = kv_heads,
                          .head_dim = head_dim,
                          .page_tokens = page_tokens,
                          .scale = 0.3f,
                          .bias = {reach == 0 ? nullptr : table.data(), reach}},
                         290, runs);
      }
    }
  }
}

// Windows shorter and longer than the rows that are computed together, than a page and than the positions of a sum; rows before
// their window is full and after; heads with a sink.
TEST_P(Exactness, AttentionOfWindows) {
  const KvRun runs[] = {{.position = 0, .tokens = 30}, {.position = 37, .tokens = 5}, {.position = 250, .tokens = 40}};
  std::vector<float> sinks = Gaussian(13, 5, 3.0f);
  sinks[1] = 40;  // outweighs all scores
  for (const auto& [head_dim, page_tokens] : {std::pair{8, 16}, {33, 32}, {64, 64}}) {
    for (const auto& [heads, kv_heads] : {std::pair{3, 3}, {4, 2}, {13, 1}}) {
      for (const int window : {0, 1, 3, 15, 128, 260}) {
        if (!Taken(11)) continue;
        CompareAttention({.heads = heads,
                          .kv_heads = kv_heads,
                          .head_dim = head_dim,
                          .page_tokens = page_tokens,
                          .scale = 0.3f,
                          .window = window,
                          .sinks = window % 2 == 0 ? sinks.data() : nullptr},
                         290, runs);
      }
    }
  }
  sinks[0] = std::numeric_limits<float>::quiet_NaN();
  sinks[2] = std::numeric_limits<float>::infinity();
  CompareAttention({.heads = 3, .kv_heads = 1, .head_dim = 8, .scale = 0.3f, .window = 20, .sinks = sinks.data()}, 290, runs);
}

TEST_P(Exactness, StoreKv) {
  for (const int head_dim : {1, 3, 8, 31, 32, 40, 128, 130}) {
    for (int format = 0; format < kKvFormatCount; ++format) {
      for (const bool awkward : {false, true}) {
        const AttentionShape shape{.heads = 6, .kv_heads = 3, .head_dim = head_dim, .kv_format = static_cast<KvFormat>(format)};
        const int positions = 90, width = shape.kv_heads * head_dim;
        const auto numbers = [&](uint32_t seed) {
          return awkward ? Awkward(positions * width, seed) : Gaussian(positions * width, seed);
        };
        const std::vector<float> keys = numbers(1), values = numbers(2);
        const KvPages expected(shape, keys, values),
            found(shape, std::vector<float>(keys.size()), std::vector<float>(keys.size()));
        // Two runs of the same sequence, one of them over the border of two pages.
        const KvRun runs[] = {{.pages = found.pages(), .position = 0, .tokens = 11},
                              {.pages = found.pages(), .position = 11, .tokens = positions - 11}};
        backend_->StoreKv(shape, runs, keys.data(), values.data());
        EXPECT_EQ(backend_->Fence(), absl::OkStatus());
        EXPECT_EQ(found.copy(), expected.copy()) << head_dim << " " << kKvFormatNames[format];
      }
    }
  }
}

// Fewer heads than a vector has lanes, as many, more than are computed together; ranks and rotated keys that fill vectors and
// scales of 32 or do not. One row each, of every length up to 43, then blocks.
TEST_P(Exactness, AttendLatent) {
  std::vector<KvRun> runs;
  for (int position = 0; position < 43; ++position) runs.push_back({.position = position, .tokens = 1});
  const KvRun blocks[] = {{.position = 0, .tokens = 70}, {.position = 37, .tokens = 5}, {.position = 64, .tokens = 7}};
  constexpr std::pair<int, int> kDims[] = {{1, 2}, {7, 4}, {8, 6}, {24, 10}, {33, 16}, {512, 64}, {150, 10}};
  constexpr int kPageTokens[] = {16, 32, 64};
  for (size_t i = 0; i < std::size(kDims); ++i) {
    for (const int heads : {1, 3, 8, 9, 16, 20}) {
      const LatentShape shape = {.heads = heads,
                                 .rank = kDims[i].first,
                                 .rotary_dims = kDims[i].second,
                                 .page_tokens = kPageTokens[i % std::size(kPageTokens)],
                                 .scale = 0.3f};
      if ((shape.rank > 100 && heads != 20) || !Taken(7)) continue;
      CompareLatent(shape, 43, runs);
      if (shape.rank < 100) CompareLatent(shape, 71, blocks);
    }
  }
}

TEST_P(Exactness, AttendLatentOverManyPositions) {
  const KvRun runs[] = {{.position = 127, .tokens = 2}, {.position = 251, .tokens = 9}, {.position = 4100, .tokens = 2}};
  for (const int heads : {3, 17}) {
    CompareLatent({.heads = heads, .rank = 24, .rotary_dims = 6, .scale = 0.3f}, 4102, runs);
  }
}

// A step of one token: its rows are shared by all threads, by positions and by columns.
TEST_P(Exactness, AttendLatentOfOneToken) {
  for (const int position : {0, 15, 63, 200, 4100}) {
    const KvRun run = {.position = position, .tokens = 1};
    for (const int heads : {3, 16, 17}) {
      CompareLatent({.heads = heads, .rank = 150, .rotary_dims = 10, .scale = 0.3f}, position + 1, {&run, 1});
    }
  }
}

TEST_P(Exactness, StoreLatent) {
  for (const auto& [rank, rotary_dims] : {std::pair(1, 2), std::pair(31, 6), std::pair(40, 10), std::pair(512, 64)}) {
    for (int format = 0; format < kKvFormatCount; ++format) {
      for (const bool awkward : {false, true}) {
        const LatentShape shape{.heads = 1, .rank = rank, .rotary_dims = rotary_dims, .kv_format = static_cast<KvFormat>(format)};
        const int positions = 90;
        const auto numbers = [&](int width, uint32_t seed) {
          return awkward ? Awkward(positions * width, seed) : Gaussian(positions * width, seed);
        };
        const std::vector<float> latents = numbers(rank, 1), rotated = numbers(rotary_dims, 2);
        const LatentPages expected(shape, latents, rotated),
            found(shape, std::vector<float>(latents.size()), std::vector<float>(rotated.size()));
        const KvRun runs[] = {{.pages = found.pages(), .position = 0, .tokens = 11},
                              {.pages = found.pages(), .position = 11, .tokens = positions - 11}};
        backend_->StoreLatent(shape, runs, latents.data(), rotated.data());
        EXPECT_EQ(backend_->Fence(), absl::OkStatus());
        EXPECT_EQ(found.copy(), expected.copy()) << rank << " " << kKvFormatNames[format];
      }
    }
  }
}

}  // namespace
}  // namespace moed
