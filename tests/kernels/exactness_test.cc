// Every backend gives the bits of "scalar": each operation, every length below two vectors and awkward ones above, any alignment,
// any number of threads.
#include <algorithm>
#include <limits>
#include <string>
#include <tuple>

#include "core/kernels/math.h"
#include "gtest/gtest.h"
#include "tests/kernels/fixtures.h"
#include "tests/kernels/tested_backends.h"

namespace moed {
namespace {

constexpr int kLengths[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,  13,  14,  15,  16,
                            17, 23, 24, 31, 32, 33, 63, 64, 65, 96, 97, 100, 127, 250, 1000};

// The formats of codes and scales, those of the weights themselves left out: one at least.
std::vector<Format> BlockFormats() {
  std::vector<Format> formats;
  std::copy_if(Formats().begin(), Formats().end(), std::back_inserter(formats),
               [](const Format& f) { return f.scale_bytes > 0; });
  EXPECT_FALSE(formats.empty());
  return formats;
}

class Exactness : public ::testing::TestWithParam<std::tuple<std::string_view, int>> {
 protected:
  void SetUp() override {
    const auto [name, threads] = GetParam();
    executor_ = MakeThreadPool(threads);
    auto backend = MakeTestedBackend(name, *executor_);
    if (backend.status().code() == absl::StatusCode::kFailedPrecondition) GTEST_SKIP() << backend.status();
    backend_ = std::move(backend).value();
  }

  // Runs `operation(backend, data)` on a copy of `data` on both, the second one misaligned.
  template <class Operation>
  void Compare(std::span<const float> data, size_t misalignment, const Operation& operation) {
    Misaligned<float> expected(data, 0);
    Misaligned<float> found(data, misalignment);
    operation(*scalar_, expected.data());
    operation(*backend_, found.data());
    EXPECT_EQ(backend_->Fence(), absl::OkStatus());
    EXPECT_TRUE(SameBits(found.copy(), expected.copy())) << "misaligned by " << misalignment;
  }
  // Whether a case is to be tried. Emulation is slow: of many cases it gets every `nth`.
  bool Taken(int nth) { return std::get<0>(GetParam()) != kCudaEmulated || cases_++ % nth == 0; }
  // Of runs that see the same `positions` positions of one sequence; pages before a run's window are not there.
  void CompareAttention(AttentionShape shape, int positions, std::span<const KvRun> runs);
  void CompareLatent(LatentShape shape, int positions, std::span<const KvRun> runs);

  InlineExecutor inline_;
  std::unique_ptr<ComputeBackend> scalar_ = MakeComputeBackend("scalar", inline_).value();
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<ComputeBackend> backend_;
  int cases_ = 0;
};

// Values where roundings, signs of zero, overflow and underflow show.
std::vector<float> Awkward(size_t count, uint32_t seed) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kSpecial[] = {
      0.0f,   -0.0f,   1e-38f, -1e-42f, 3e38f, -3e38f,    88.7f,      -88.8f,
      104.0f, -104.0f, 1e-20f, -1e-20f, 0.5f,  kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()};
  std::vector<float> values = Gaussian(count, seed, 10.0f);
  std::mt19937 random(seed);
  for (float& value : values) {
    if (random() % 3 == 0) value = kSpecial[random() % std::size(kSpecial)];
  }
  return values;
}

TEST_P(Exactness, Prepare) {
  for (int cols : kLengths) {
    for (int tokens : {1, 3, 20}) {
      for (bool awkward : {false, true}) {
        const std::vector<float> x = awkward ? Awkward(tokens * cols, cols) : Gaussian(tokens * cols, cols);
        Misaligned<float> input(x, cols % 8);
        const size_t bytes = ActivationBytes(tokens, cols);
        Buffer expected_storage = Buffer::Allocate(bytes).value(), storage = Buffer::Allocate(bytes).value();
        const Activations expected = scalar_->Prepare(x.data(), tokens, cols, cols, kAllForms, expected_storage.span());
        const Activations found = backend_->Prepare(input.data(), tokens, cols, cols, kAllForms, storage.span());
        EXPECT_EQ(backend_->Fence(), absl::OkStatus());
        EXPECT_TRUE(SamePrepared(found, expected)) << cols;
      }
    }
  }
}

// Norms and activations that are prepared at once, against the scalar operations one after the other.
TEST_P(Exactness, WhatIsPreparedAtOnce) {
  const FfnActivation activations[] = {kSwiGlu, kGeGlu, kSquaredRelu,
                                       kRelu,   kReGlu, {GateFunction::kClampedSwiGlu, {1.702f, 7.0f}}};
  for (int cols : kLengths) {
    const std::vector<float> weight = Gaussian(cols, 2), bias = Gaussian(cols, 3);
    for (const auto& [rows, awkward] : {std::pair(1, false), {3, true}}) {
      const std::vector<float> x = awkward ? Awkward(rows * cols, cols) : Gaussian(rows * cols, cols);
      const std::vector<float> gate = Gaussian(rows * cols, 5);
      for (const InputForms forms : {InputForms{.values = true}, InputForms{.codes = true}, kAllForms}) {
        const size_t bytes = ActivationBytes(rows, cols, forms);
        Buffer expected_storage = Buffer::Allocate(bytes).value(), storage = Buffer::Allocate(bytes).value();
        for (const Norm& norm :
             {Norm{.eps = 1e-6f}, Norm{.weight = weight.data(), .eps = 1e-6f}, Norm{weight.data(), bias.data(), 1e-5f}}) {
          std::vector<float> expected_y = x, y = x;
          scalar_->Normalize(norm, expected_y.data(), rows, cols, expected_y.data());
          const Activations expected = scalar_->Prepare(expected_y.data(), rows, cols, cols, forms, expected_storage.span());
          const Activations found = backend_->NormalizeAndPrepare(norm, y.data(), rows, cols, y.data(), forms, storage.span());
          EXPECT_EQ(backend_->Fence(), absl::OkStatus());
          EXPECT_TRUE(SameBits(y, expected_y)) << cols;
          EXPECT_TRUE(SamePrepared(found, expected)) << cols;
        }
        for (const FfnActivation& activation : activations) {
          std::vector<float> expected_up = x, up = x;
          const int64_t n = int64_t{rows} * cols;
          scalar_->Activate(activation, gate.data(), expected_up.data(), n, expected_up.data());
          const Activations expected = scalar_->Prepare(expected_up.data(), rows, cols, cols, forms, expected_storage.span());
          const Activations found =
              backend_->ActivateAndPrepare(activation, gate.data(), up.data(), rows, cols, forms, storage.span());
          EXPECT_EQ(backend_->Fence(), absl::OkStatus());
          EXPECT_TRUE(SamePrepared(found, expected)) << cols << ", function " << static_cast<int>(activation.function);
        }
      }
    }
  }
}

TEST_P(Exactness, MatMulShapes) {
  for (const Format& format : Formats()) {
    for (int rows : {1, 5, 7, 8, 9, 15, 16, 17, 23, 24, 31, 32, 33, 40, 71}) {
      for (int cols : ColumnsFor(format, {1, 31, 32, 33, 64, 95, 160, 300})) {
        const PackedMatrix matrix = RandomMatrix(format.id, rows, cols, rows * 1000 + cols);
        for (int tokens : {1, 2, 3, 4, 5, 6, 7, 8, 9}) {
          if (!Taken(23)) continue;
          const std::vector<float> x = Gaussian(tokens * cols, tokens);
          EXPECT_TRUE(SameBits(Multiply(*backend_, matrix.view, x, tokens, tokens), Multiply(*scalar_, matrix.view, x, tokens)))
              << format.name << " " << rows << "x" << cols << " tokens " << tokens;
        }
      }
    }
  }
}

TEST_P(Exactness, MatMulTokens) {
  for (const Format& format : Formats()) {
    for (int rows : {8, 24, 40}) {
      const int cols = ColumnsFor(format, 96);
      const PackedMatrix matrix = RandomMatrix(format.id, rows, cols, rows);
      for (int tokens : {10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 33}) {
        if (!Taken(7)) continue;
        const std::vector<float> x = Gaussian(tokens * cols, tokens);
        EXPECT_TRUE(SameBits(Multiply(*backend_, matrix.view, x, tokens), Multiply(*scalar_, matrix.view, x, tokens)))
            << format.name << " rows " << rows << " tokens " << tokens;
      }
    }
  }
}

// More tokens and columns than kernels take at once.
TEST_P(Exactness, MatMulBeyondOneRange) {
  struct Shape {
    int rows, least, tokens;
  };
  for (const Format& format : Formats()) {
    for (const auto [rows, least, tokens] : {Shape{43, 2500, 100}, Shape{12, 100, 300}, Shape{9, 30000, 7}, Shape{24, 700, 35}}) {
      if (!Taken(11)) continue;
      const int cols = ColumnsFor(format, least);
      const PackedMatrix matrix = RandomMatrix(format.id, rows, cols, 5);
      const std::vector<float> x = Gaussian(static_cast<size_t>(tokens) * cols, 6);
      EXPECT_TRUE(SameBits(Multiply(*backend_, matrix.view, x, tokens), Multiply(*scalar_, matrix.view, x, tokens)))
          << format.name << " " << rows << "x" << cols << " tokens " << tokens;
    }
  }
}

TEST_P(Exactness, MatMulLargeEnoughForThreads) {
  for (const Format& format : Formats()) {
    const int rows = 500, cols = ColumnsFor(format, 608);
    const PackedMatrix matrix = RandomMatrix(format.id, rows, cols, 3);
    for (int tokens : {1, 6, 18}) {
      if (!Taken(5)) continue;
      const std::vector<float> x = Gaussian(tokens * cols, tokens);
      EXPECT_TRUE(SameBits(Multiply(*backend_, matrix.view, x, tokens), Multiply(*scalar_, matrix.view, x, tokens)))
          << format.name << " tokens " << tokens;
    }
  }
}

// Stores are input: any byte may stand where a code or a scale belongs.
TEST_P(Exactness, MatMulOfAnyBytes) {
  const int rows = 24;
  std::mt19937 random(4);
  for (const Format& format : Formats()) {
    const int cols = ColumnsFor(format, 96);
    for (int round = 0; round < 20; ++round) {
      PackedMatrix matrix = RandomMatrix(format.id, rows, cols, 1);
      for (std::byte& byte : matrix.bytes) byte = std::byte(random() & 0xff);
      const int tokens = round % 4 < 2 ? 3 : 17;
      const std::vector<float> x = round % 2 == 0 ? Gaussian(tokens * cols, round) : Awkward(tokens * cols, round);
      EXPECT_TRUE(SameBits(Multiply(*backend_, matrix.view, x, tokens), Multiply(*scalar_, matrix.view, x, tokens)))
          << format.name << " tokens " << tokens;
    }
  }
}

// Every byte, so every code (and q8's -128, which no encoder writes), against the largest sums that activations make.
TEST_P(Exactness, MatMulEveryCode) {
  for (const Format& format : BlockFormats()) {
    const int cols = ColumnsFor(format, 64);
    PackedMatrix matrix = RandomMatrix(format.id, 32, cols, 1);
    for (int fill = 0; fill < 256; ++fill) {
      for (size_t i = 0; i < matrix.bytes.size(); ++i) {
        if (i % format.panel_block_bytes >= format.scale_bytes) matrix.bytes[i] = std::byte(fill);
      }
      for (float value : {1.0f, -1.0f}) {  // codes of 127 or -127 throughout
        for (int tokens : {1, 3, 17}) {
          if (!Taken(31)) continue;
          const std::vector<float> x(tokens * cols, value);
          const std::vector<float> one = Multiply(*scalar_, matrix.view, std::span(x).first(cols), 1);
          std::vector<float> expected;  // tokens that are all the same
          for (int token = 0; token < tokens; ++token) expected.insert(expected.end(), one.begin(), one.end());
          EXPECT_TRUE(SameBits(Multiply(*backend_, matrix.view, x, tokens), expected)) << format.name << " " << fill;
        }
      }
    }
  }
}

// float16 infinity and NaN as the scale of one row, or in one token's activations, show in that row or token alone.
TEST_P(Exactness, MatMulNonFinite) {
  const int rows = 32, tokens = 21;
  for (const Format& format : BlockFormats()) {
    if (format.scale_bytes < 2 * kPanelRows) continue;  // its scales are all finite
    const int cols = ColumnsFor(format, 96);
    for (uint16_t scale : {0x7c00, 0xfc00, 0x7e00}) {
      PackedMatrix matrix = RandomMatrix(format.id, rows, cols, 2);
      std::memcpy(matrix.bytes.data() + 3 * sizeof(scale), &scale, sizeof(scale));  // row 3, first block
      std::vector<float> x = Gaussian(tokens * cols, 3);
      x[2 * cols + 40] = std::numeric_limits<float>::infinity();
      const std::vector<float> y = Multiply(*backend_, matrix.view, x, tokens);
      EXPECT_TRUE(SameBits(y, Multiply(*scalar_, matrix.view, x, tokens))) << format.name << " " << scale;
      for (int token = 0; token < tokens; ++token) {
        for (int row = 0; row < rows; ++row) {
          EXPECT_EQ(std::isfinite(y[token * rows + row]), token != 2 && row != 3) << token << " " << row;
        }
      }
    }
  }
}

TEST_P(Exactness, RmsNorm) {
  for (int cols : kLengths) {
    for (int rows : {1, 3, 40}) {
      const std::vector<float> weight = Gaussian(cols, 2);
      const auto operation = [&](ComputeBackend& backend, float* x) {
        backend.Normalize({.weight = weight.data(), .eps = 1e-6f}, x, rows, cols, x);
      };
      Compare(Gaussian(rows * cols, cols), cols % 8, operation);
      Compare(Gaussian(rows * cols, cols, 1e-23f), 1, operation);
      Compare(Awkward(rows * cols, cols), 3, operation);
      Compare(Gaussian(rows * cols, cols), cols % 8,
              [&](ComputeBackend& backend, float* x) { backend.Normalize({.eps = 1e-6f}, x, rows, cols, x); });
    }
  }
}

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

// Whatever number of heads shares keys: fewer rows than are computed together, as many, more.
constexpr std::pair<int, int> kHeads[] = {{3, 3}, {4, 2}, {10, 2}, {13, 1}};

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

TEST_P(Exactness, Softmax) {
  for (int cols : kLengths) {
    for (int rows : {1, 4, 30}) {
      const auto operation = [&](ComputeBackend& backend, float* x) { backend.Softmax(x, rows, cols); };
      Compare(Gaussian(rows * cols, cols, 4.0f), cols % 8, operation);
      Compare(Gaussian(rows * cols, cols, 60.0f), 1, operation);  // many underflow
      Compare(Awkward(rows * cols, cols), 2, operation);
    }
  }
}

TEST_P(Exactness, Elementwise) {
  for (int n : kLengths) {
    for (bool awkward : {false, true}) {
      const std::vector<float> x = awkward ? Awkward(n, n) : Gaussian(n, n);
      const std::vector<float> other = awkward ? Awkward(n, n + 1) : Gaussian(n, n + 1);
      const size_t misalignment = n % 8;
      Compare(x, misalignment, [&](ComputeBackend& backend, float* y) { backend.SigmoidGate(y, other.data(), n); });
      Compare(x, misalignment, [&](ComputeBackend& backend, float* y) { backend.SigmoidGate(y, y, n); });
      Compare(x, misalignment, [&](ComputeBackend& backend, float* y) { backend.Activate(kSwiGlu, y, other.data(), n, y); });
      Compare(x, misalignment, [&](ComputeBackend& backend, float* y) { backend.Activate(kSwiGlu, other.data(), y, n, y); });
      Compare(x, misalignment, [&](ComputeBackend& backend, float* y) { backend.Activate(kGeGlu, y, other.data(), n, y); });
      Compare(x, misalignment, [&](ComputeBackend& backend, float* y) { backend.Activate(kGeGlu, other.data(), y, n, y); });
      Compare(x, misalignment, [&](ComputeBackend& backend, float* y) { backend.Activate(kSquaredRelu, nullptr, y, n, y); });
      Compare(x, misalignment, [&](ComputeBackend& backend, float* y) { backend.Activate(kRelu, nullptr, y, n, y); });
      Compare(x, misalignment, [&](ComputeBackend& backend, float* y) { backend.Activate(kReGlu, y, other.data(), n, y); });
      for (const int width : {1, 3}) {
        Compare(x, misalignment,
                [&](ComputeBackend& backend, float* y) { backend.SoftplusGate(y, other.data(), n / width, width); });
      }
      Compare(x, misalignment, [&](ComputeBackend& backend, float* y) { backend.SoftCap(y, 1.5f, n); });
      for (const SwiGluClamp& clamp : {SwiGluClamp{1.702f, 7.0f}, {1.0f, 0.25f}}) {
        Compare(x, misalignment, [&](ComputeBackend& backend, float* y) {
          backend.Activate({GateFunction::kClampedSwiGlu, clamp}, y, other.data(), n, y);
        });
        Compare(x, misalignment, [&](ComputeBackend& backend, float* y) {
          backend.Activate({GateFunction::kClampedSwiGlu, clamp}, other.data(), y, n, y);
        });
      }
      Compare(x, misalignment, [&](ComputeBackend& backend, float* y) { backend.AddScaled(y, other.data(), 0.37f, n); });
      Compare(x, misalignment, [&](ComputeBackend& backend, float* y) { backend.Add(y, other.data(), n); });
    }
  }
}

TEST_P(Exactness, ActivationsOverTheWholeRange) {
  std::vector<float> gate;
  for (float x = -130.0f; x < 130.0f; x += 0.0037f) gate.push_back(x);
  const std::vector<float> up(gate.size(), 1.0f);
  const auto n = static_cast<int64_t>(gate.size());
  Compare(gate, 0, [&](ComputeBackend& backend, float* y) { backend.Activate(kSwiGlu, y, up.data(), n, y); });
  Compare(gate, 0, [&](ComputeBackend& backend, float* y) { backend.Activate(kGeGlu, y, up.data(), n, y); });
  Compare(gate, 0, [&](ComputeBackend& backend, float* y) { backend.Activate(kSquaredRelu, nullptr, y, n, y); });
  Compare(gate, 0, [&](ComputeBackend& backend, float* y) { backend.Activate(kRelu, nullptr, y, n, y); });
  for (const float cap : {1.0f, 30.0f}) {
    Compare(gate, 0, [&](ComputeBackend& backend, float* y) { backend.SoftCap(y, cap, n); });
  }
}

TEST_P(Exactness, PrepareGivesEachFormAlone) {
  for (int cols : kLengths) {
    const int tokens = 3;
    const std::vector<float> x = Awkward(tokens * cols, cols);
    Buffer both = Buffer::Allocate(ActivationBytes(tokens, cols)).value(), one = Buffer::Allocate(both.size()).value();
    const Activations expected = scalar_->Prepare(x.data(), tokens, cols, cols, kAllForms, both.span());
    const size_t blocks = static_cast<size_t>(tokens) * Blocks(cols);
    const Activations values = backend_->Prepare(x.data(), tokens, cols, cols, {.values = true}, one.span());
    EXPECT_EQ(backend_->Fence(), absl::OkStatus());
    EXPECT_TRUE(SameBits({values.values, blocks * 32}, {expected.values, blocks * 32})) << cols;
    const Activations codes = backend_->Prepare(x.data(), tokens, cols, cols, {.codes = true}, one.span());
    EXPECT_EQ(backend_->Fence(), absl::OkStatus());
    EXPECT_TRUE(SameBits({codes.scales, blocks}, {expected.scales, blocks})) << cols;
    EXPECT_EQ(std::memcmp(codes.codes, expected.codes, blocks * 32), 0) << cols;
    EXPECT_EQ(std::memcmp(codes.sums, expected.sums, blocks * 4), 0) << cols;
  }
}

std::vector<RouterShape> RouterShapes(int experts, int top_k, const float* correction) {
  std::vector<RouterShape> shapes = {
      {.experts = experts, .top_k = top_k},
      {.experts = experts, .top_k = top_k, .normalize = true},
      {.experts = experts, .top_k = top_k, .correction = correction},
      {.experts = experts, .top_k = top_k, .normalize = true, .scoring = RouterScoring::kSigmoid, .epsilon = 1e-6f},
      {.experts = experts, .top_k = top_k, .scoring = RouterScoring::kSparsemixer, .jitter = 0.1f},
      {.experts = experts, .top_k = top_k, .normalize = true, .scoring = RouterScoring::kSigmoidOfChosen},
  };
  if (experts % 2 == 0) {
    shapes.push_back({.experts = experts,
                      .top_k = top_k,
                      .scoring = RouterScoring::kSigmoid,
                      .correction = correction,
                      .groups = 2,
                      .kept_groups = 1,
                      .group_rank = GroupRank::kTwoLargestKeys});
  }
  return shapes;
}

TEST_P(Exactness, Route) {
  for (const auto& [experts, top_k] : {std::pair(1, 1), std::pair(7, 3), std::pair(64, 8), std::pair(130, 4)}) {
    const std::vector<float> correction = Gaussian(experts, top_k);
    for (const int rows : {1, 5, 300}) {
      for (const RouterShape& shape : RouterShapes(experts, top_k, correction.data())) {
        std::vector<float> expected_logits = Gaussian(static_cast<size_t>(rows) * experts, rows, 3.0f);
        std::vector<float> logits = expected_logits;
        std::vector<ExpertChoice> expected(static_cast<size_t>(rows) * top_k), choices = expected;
        scalar_->Route(shape, expected_logits.data(), rows, expected.data());
        backend_->Route(shape, logits.data(), rows, choices.data());
        EXPECT_EQ(backend_->Fence(), absl::OkStatus());
        EXPECT_TRUE(SameBits(logits, expected_logits));
        EXPECT_EQ(std::memcmp(choices.data(), expected.data(), choices.size() * sizeof(ExpertChoice)), 0);
        expected_logits = logits = Gaussian(logits.size(), rows + 1, 3.0f);
        scalar_->Rank(shape, expected_logits.data(), rows);
        backend_->Rank(shape, logits.data(), rows);
        EXPECT_EQ(backend_->Fence(), absl::OkStatus());
        EXPECT_TRUE(SameBits(logits, expected_logits));
      }
    }
  }
}

// Against the sums written out; a row of several pieces, slots without an output, a shared expert with and without a gate.
TEST_P(Exactness, Combine) {
  const int top_k = 3;
  for (const int cols : {1, 40, 1024, 2500}) {
    for (const int rows : {1, 4, 40}) {
      const size_t slots = static_cast<size_t>(rows) * top_k;
      const std::vector<float> x = Gaussian(static_cast<size_t>(rows) * cols, 1), shared = Gaussian(x.size(), 2),
                               outputs = Gaussian(slots * cols, 3), gate = Awkward(rows, 4), weights = Gaussian(slots, 5);
      std::vector<ExpertChoice> choices(slots);
      std::vector<int32_t> places(slots);
      for (size_t i = 0; i < slots; ++i) {
        choices[i] = {.expert = static_cast<int32_t>(i % 4), .probability = weights[i]};
        places[i] = i % 5 == 2 ? kNoOutput : static_cast<int32_t>(slots - 1 - i);
      }
      const std::vector<float> expert_scales = {0.7f, 1.3f, 0.2f, 1.9f};
      for (const auto& [with_shared, with_gate, with_scales] : {std::tuple(false, false, false), std::tuple(true, false, false),
                                                                std::tuple(true, true, false), std::tuple(false, false, true)}) {
        const float scale = with_shared ? 2.5f : 1.0f;
        std::vector<float> expected = x, y = x;
        if (with_scales) std::fill(expected.begin(), expected.end(), 0.0f);  // what was there is not added to
        for (int row = 0; row < rows; ++row) {
          float* sum = &expected[static_cast<size_t>(row) * cols];
          for (int slot = row * top_k; slot < (row + 1) * top_k; ++slot) {
            if (places[slot] == kNoOutput) continue;
            const float factor = with_scales ? expert_scales[choices[slot].expert] : 1.0f;
            scalar_->AddScaled(sum, &outputs[static_cast<size_t>(places[slot]) * cols], weights[slot] * scale * factor, cols);
          }
          if (with_shared)
            scalar_->AddScaled(sum, &shared[static_cast<size_t>(row) * cols], with_gate ? Sigmoid(gate[row]) : 1, cols);
        }
        backend_->Combine({.rows = rows,
                           .cols = cols,
                           .top_k = top_k,
                           .choices = choices.data(),
                           .scale = scale,
                           .expert_scales = with_scales ? expert_scales.data() : nullptr,
                           .places = places,
                           .outputs = outputs.data(),
                           .shared = with_shared ? shared.data() : nullptr,
                           .shared_gate = with_gate ? gate.data() : nullptr,
                           .x = y.data(),
                           .adds = !with_scales});
        EXPECT_EQ(backend_->Fence(), absl::OkStatus());
        EXPECT_TRUE(SameBits(y, expected)) << rows << " rows of " << cols;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Exactness, ::testing::Combine(::testing::ValuesIn(BackendNames()), ::testing::Values(1, 2, 3)),
                         [](const auto& info) {
                           return TestName(std::get<0>(info.param)) + "_" + std::to_string(std::get<1>(info.param)) + "_threads";
                         });

// Threads of the processor are nothing to it.
INSTANTIATE_TEST_SUITE_P(InEmulation, Exactness, ::testing::Values(std::tuple(kCudaEmulated, 1)),
                         [](const auto& info) { return TestName(std::get<0>(info.param)); });

}  // namespace
}  // namespace moed
