// The scalar definition against plain computations in double.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "core/base/executor.h"
#include "core/kernels/math.h"
#include "gtest/gtest.h"
#include "tests/kernels/fixtures.h"

namespace moed {
namespace {

class Definition : public ::testing::Test {
 protected:
  InlineExecutor executor_;
  std::unique_ptr<ComputeBackend> backend_ = MakeComputeBackend("scalar", executor_).value();
};

TEST_F(Definition, PreparedActivations) {
  const int tokens = 3, cols = 50, stride = 57;
  std::vector<float> x = Gaussian(tokens * stride, 1);
  for (int k = 32; k < 50; ++k) x[stride + k] = 0;  // a block of zeros
  Buffer storage = Buffer::Allocate(ActivationBytes(tokens, cols)).value();
  const Activations a = backend_->Prepare(x.data(), tokens, cols, stride, kAllForms, storage.span());
  EXPECT_EQ(a.tokens, tokens);
  EXPECT_EQ(a.cols, cols);
  for (int block = 0; block < tokens * 2; ++block) {
    float largest = 0;
    int sum = 0;
    for (int i = 0; i < 32; ++i) {
      const int column = block % 2 * 32 + i;
      const float expected = column < cols ? x[block / 2 * stride + column] : 0.0f;
      EXPECT_EQ(a.values[32 * block + i], expected);
      EXPECT_NEAR(a.codes[32 * block + i] * a.scales[block], expected, a.scales[block] * 0.5001);
      largest = std::max(largest, std::fabs(expected));
      sum += a.codes[32 * block + i];
    }
    EXPECT_EQ(a.scales[block], largest / 127);
    EXPECT_EQ(a.sums[block], sum);
  }
}

TEST_F(Definition, ActivationsThatAreNotFiniteShow) {
  for (const Format& format : Formats()) {
    const int cols = ColumnsFor(format, 64);
    std::vector<float> x(cols, 1.0f);
    x[40] = std::numeric_limits<float>::infinity();
    for (float y : Multiply(*backend_, RandomMatrix(format.id, 9, cols, 2).view, x, 1)) {
      EXPECT_FALSE(std::isfinite(y)) << format.name;
    }
  }
}

TEST_F(Definition, TinyActivationsAreZero) {
  const std::vector<float> x(32, 1e-38f);
  for (float y : Multiply(*backend_, RandomMatrix(FormatId::kQ8, 9, 32, 2).view, x, 1)) EXPECT_EQ(y, 0.0f);
}

TEST_F(Definition, ProductsWithDecodedWeights) {
  for (const Format& format : Formats()) {
    for (auto [rows, least] : {std::pair{1, 1}, {8, 32}, {13, 45}, {40, 256}, {9, 700}}) {
      const int tokens = 2, cols = ColumnsFor(format, least);
      const PackedMatrix matrix = RandomMatrix(format.id, rows, cols, rows + cols);
      const std::vector<float> x = Gaussian(tokens * cols, 9);
      const std::vector<float> y = Multiply(*backend_, matrix.view, x, tokens);
      for (int row = 0; row < rows; ++row) {
        std::vector<float> w(cols);
        DecodeRow(format.id, matrix.bytes.data(), cols, row, w.data());
        for (int token = 0; token < tokens; ++token) {
          double truth = 0, weight_norm = 0, input_norm = 0;
          for (int k = 0; k < cols; ++k) {
            const double v = x[token * cols + k];
            truth += w[k] * v;
            weight_norm += double{w[k]} * w[k];
            input_norm += v * v;
          }
          // Quantised activations are off by at most half a step: 1/254 of the block's greatest.
          const double relative = format.integer_activations() ? 0.015 : 1e-5;
          EXPECT_NEAR(y[token * rows + row], truth, relative * std::sqrt(weight_norm * input_norm) + 1e-7)
              << format.name << " " << rows << "x" << cols << " row " << row;
        }
      }
    }
  }
}

TEST_F(Definition, RmsNorm) {
  const int rows = 3, cols = 77;
  const std::vector<float> x = Gaussian(rows * cols, 4), weight = Gaussian(cols, 5);
  std::vector<float> y(x.size());
  backend_->Normalize({.weight = weight.data(), .eps = 1e-5f}, x.data(), rows, cols, y.data());
  for (int row = 0; row < rows; ++row) {
    double squares = 0;
    for (int i = 0; i < cols; ++i) squares += double{x[row * cols + i]} * x[row * cols + i];
    for (int i = 0; i < cols; ++i) {
      EXPECT_NEAR(y[row * cols + i], x[row * cols + i] * weight[i] / std::sqrt(squares / cols + 1e-5), 1e-5);
    }
  }
}

TEST_F(Definition, LayerNorm) {
  const int rows = 3, cols = 77;
  const std::vector<float> x = Gaussian(rows * cols, 4), weight = Gaussian(cols, 5), bias = Gaussian(cols, 6);
  std::vector<float> y(x.size());
  backend_->Normalize({weight.data(), bias.data(), 1e-5f}, x.data(), rows, cols, y.data());
  for (int row = 0; row < rows; ++row) {
    double sum = 0, squares = 0;
    for (int i = 0; i < cols; ++i) sum += x[row * cols + i];
    const double mean = sum / cols;
    for (int i = 0; i < cols; ++i) squares += (x[row * cols + i] - mean) * (x[row * cols + i] - mean);
    for (int i = 0; i < cols; ++i) {
      EXPECT_NEAR(y[row * cols + i], (x[row * cols + i] - mean) / std::sqrt(squares / cols + 1e-5) * weight[i] + bias[i], 1e-5);
    }
  }
}

TEST_F(Definition, Scale) {
  const std::vector<float> x = Gaussian(3001, 4);
  std::vector<float> y = x;
  backend_->Scale(y.data(), 0.3f, static_cast<int64_t>(y.size()));
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], x[i] * 0.3f);
}

TEST_F(Definition, RopeRotatesHalves) {
  const int tokens = 2, heads = 3, head_dim = 10, stride = 41;
  const std::vector<float> x = Gaussian(tokens * stride, 6);
  const std::vector<int32_t> positions = {7, 100000};
  std::vector<float> inv_freq(head_dim / 2);
  for (int i = 0; i < head_dim / 2; ++i) inv_freq[i] = static_cast<float>(std::pow(10000.0, -2.0 * i / head_dim));
  std::vector<float> y = x;
  backend_->Rope({heads, head_dim, head_dim}, y.data(), tokens, stride, positions.data(), inv_freq.data());
  for (int token = 0; token < tokens; ++token) {
    for (int i = 0; i < stride; ++i) {
      const int at = token * stride + i;
      if (i >= heads * head_dim) {
        EXPECT_EQ(y[at], x[at]) << "beyond the heads";
        continue;
      }
      const int pair = i % (head_dim / 2);
      const double angle = static_cast<float>(positions[token]) * inv_freq[pair];
      const bool first = i % head_dim < head_dim / 2;
      const double expected = first ? x[at] * std::cos(angle) - x[at + head_dim / 2] * std::sin(angle)
                                    : x[at] * std::cos(angle) + x[at - head_dim / 2] * std::sin(angle);
      EXPECT_NEAR(y[at], expected, 1e-6);
    }
  }
}

// Interleaved pairs are the split ones of the same numbers in the other order; what lies beyond the rotary dimensions stays.
TEST_F(Definition, RopeTakesNeighboursForPairs) {
  const int heads = 2, head_dim = 14, rotary_dims = 10, half = rotary_dims / 2;
  const std::vector<float> interleaved = Gaussian(heads * head_dim, 6);
  std::vector<float> split = interleaved;
  for (int head = 0; head < heads; ++head) {
    for (int i = 0; i < rotary_dims; ++i) split[head * head_dim + i / 2 + i % 2 * half] = interleaved[head * head_dim + i];
  }
  const std::vector<float> inv_freq = {1, 0.5f, 0.25f, 0.1f, 0.01f};
  const int32_t position = 9;
  std::vector<float> got = interleaved, expected = split;
  backend_->Rope({heads, head_dim, rotary_dims, true}, got.data(), 1, heads * head_dim, &position, inv_freq.data());
  backend_->Rope({heads, head_dim, rotary_dims, false}, expected.data(), 1, heads * head_dim, &position, inv_freq.data());
  EXPECT_EQ(got, expected);
  EXPECT_NE(got, split);
  for (int head = 0; head < heads; ++head) {
    for (int i = rotary_dims; i < head_dim; ++i) EXPECT_EQ(got[head * head_dim + i], interleaved[head * head_dim + i]);
  }
}

TEST_F(Definition, RopeMultipliesWhatTurns) {
  const int heads = 2, head_dim = 14, rotary_dims = 10;
  const std::vector<float> x = Gaussian(heads * head_dim, 6), inv_freq = {1, 0.5f, 0.25f, 0.1f, 0.01f};
  const int32_t position = 9;
  std::vector<float> got = x, expected = x;
  for (int head = 0; head < heads; ++head) {
    for (int i = 0; i < rotary_dims; ++i) expected[head * head_dim + i] *= 1.3f;
  }
  backend_->Rope({heads, head_dim, rotary_dims, false, 1.3f}, got.data(), 1, heads * head_dim, &position, inv_freq.data());
  backend_->Rope({heads, head_dim, rotary_dims}, expected.data(), 1, heads * head_dim, &position, inv_freq.data());
  EXPECT_EQ(got, expected);
}

TEST_F(Definition, AttentionOverPages) {
  const AttentionShape shape{.heads = 6, .kv_heads = 2, .head_dim = 5, .page_tokens = 16, .scale = 0.4f};
  const int length = 300, tokens = 2, token_floats = shape.kv_heads * shape.head_dim;
  const std::vector<float> query = Gaussian(tokens * shape.heads * shape.head_dim, 1);
  const std::vector<float> keys = Gaussian(length * token_floats, 10), values = Gaussian(length * token_floats, 20);
  const KvPages kept(shape, keys, values);
  std::vector<float> output(query.size());
  std::vector<float> scratch(ComputeBackend::AttentionScratchFloats(1, length));
  const KvRun run{.pages = kept.pages(), .position = length - tokens, .tokens = tokens};
  backend_->Attention(shape, {&run, 1}, query.data(), output.data(), scratch);
  for (int row = 0; row < tokens * shape.heads; ++row) {
    const auto at = [&](int t) { return t * token_floats + row % shape.heads / 3 * shape.head_dim; };
    const int seen = length - tokens + row / shape.heads + 1;
    std::vector<double> weight(seen);
    for (int t = 0; t < seen; ++t) {
      double score = 0;
      for (int d = 0; d < shape.head_dim; ++d) score += query[row * 5 + d] * keys[at(t) + d];
      weight[t] = std::exp(shape.scale * score);
    }
    const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
    for (int d = 0; d < shape.head_dim; ++d) {
      double expected = 0;
      for (int t = 0; t < seen; ++t) expected += weight[t] / total * values[at(t) + d];
      EXPECT_NEAR(output[row * 5 + d], expected, 1e-5);
    }
  }
}

// A row sees the last positions up to its own; a head's sink takes its part of the weight away.
TEST_F(Definition, AttentionOfWindowsWithSinks) {
  const int length = 300, tokens = 12;
  const float sinks[] = {0.5f, -2.0f};
  for (const int window : {1, 7, 40, 280, 1000}) {
    const AttentionShape shape{
        .heads = 2, .kv_heads = 1, .head_dim = 3, .page_tokens = 16, .scale = 0.4f, .window = window, .sinks = sinks};
    const std::vector<float> query = Gaussian(tokens * 6, 1), keys = Gaussian(length * 3, 10), values = Gaussian(length * 3, 20);
    const KvPages kept(shape, keys, values);
    std::vector<float> output(query.size()), scratch(ComputeBackend::AttentionScratchFloats(1, length));
    const KvRun run{.pages = kept.pages(), .position = length - tokens, .tokens = tokens};
    backend_->Attention(shape, {&run, 1}, query.data(), output.data(), scratch);
    for (int row = 0; row < tokens * 2; ++row) {
      const int seen = length - tokens + row / 2 + 1;
      double total = std::exp(double{sinks[row % 2]}), expected[3] = {};
      for (int t = std::max(seen - window, 0); t < seen; ++t) {
        double score = 0;
        for (int d = 0; d < 3; ++d) score += query[row * 3 + d] * keys[t * 3 + d];
        const double weight = std::exp(shape.scale * score);
        total += weight;
        for (int d = 0; d < 3; ++d) expected[d] += weight * values[t * 3 + d];
      }
      for (int d = 0; d < 3; ++d) EXPECT_NEAR(output[row * 3 + d], expected[d] / total, 1e-5) << window << " " << row;
    }
  }
}

// Rows see positions of their run alone, before and behind them; what is added counts from the row's position.
TEST_F(Definition, AttentionOfRunsWithinTheirPositions) {
  const int length = 90, tokens = 5, reach = 4;
  const std::vector<float> table = Gaussian(2 * (2 * reach + 1), 3);
  const AttentionShape shape{
      .heads = 2, .kv_heads = 2, .head_dim = 3, .page_tokens = 16, .scale = 1, .bias = {table.data(), reach}};
  const std::vector<float> query = Gaussian(tokens * 6, 1), keys = Gaussian(length * 6, 10), values = Gaussian(length * 6, 20);
  const KvPages kept(shape, keys, values);
  for (const bool whole : {true, false}) {
    const KvRun run{.pages = kept.pages(), .position = 50, .tokens = tokens, .first = whole ? 0 : 48, .seen = whole ? 77 : 0};
    std::vector<float> output(query.size()), scratch(ComputeBackend::AttentionScratchFloats(1, length));
    backend_->Attention(shape, {&run, 1}, query.data(), output.data(), scratch);
    for (int row = 0; row < tokens * 2; ++row) {
      const int position = 50 + row / 2, head = row % 2;
      double total = 0, expected[3] = {};
      for (int t = whole ? 0 : 48; t < (whole ? 77 : position + 1); ++t) {
        double score = table[head * 9 + 4 + std::clamp(t - position, -4, 4)];
        for (int d = 0; d < 3; ++d) score += query[row * 3 + d] * keys[t * 6 + head * 3 + d];
        total += std::exp(score);
        for (int d = 0; d < 3; ++d) expected[d] += std::exp(score) * values[t * 6 + head * 3 + d];
      }
      for (int d = 0; d < 3; ++d) EXPECT_NEAR(output[row * 3 + d], expected[d] / total, 1e-5) << whole << " " << row;
    }
  }
}

// With one dimension and scores that are all the same, every rounding can be followed: in sums of 256 positions 2^-24 beside 1 is
// lost in the first and kept in the second.
TEST_F(Definition, ValuesAreAddedUpInGroupsOfPositions) {
  const AttentionShape shape{.heads = 1, .kv_heads = 1, .head_dim = 1, .scale = 1};
  const int length = 512;
  std::vector<float> values(length, 0x1p-24f);
  values[0] = 1;
  const KvPages kept(shape, std::vector<float>(length), values);
  const float query = 1;
  float output = 0;
  std::vector<float> scratch(ComputeBackend::AttentionScratchFloats(1, length));
  const KvRun run{.pages = kept.pages(), .position = length - 1, .tokens = 1};
  backend_->Attention(shape, {&run, 1}, &query, &output, scratch);
  EXPECT_EQ(output, (1 + 0x1p-16f) / length);
}

// 1 + 2^-12 squared and minus the rounded square: what is left is the error of the product, which fma keeps.
TEST_F(Definition, ScoresAreOneChainOfFusedMultiplyAdds) {
  const AttentionShape shape{.heads = 1, .kv_heads = 1, .head_dim = 2, .scale = 0x1p24f};
  const float x = 1 + 0x1p-12f;
  const float query[] = {-1, x};
  const float keys[] = {x * x, x, 0, 0}, values[] = {1, 1, 0, 0};
  const KvPages kept(shape, keys, values);
  float output[2];
  std::vector<float> scratch(ComputeBackend::AttentionScratchFloats(1, 2));
  const KvRun run{.pages = kept.pages(), .position = 1, .tokens = 1};
  backend_->Attention(shape, {&run, 1}, query, output, scratch);
  const double score = 1;  // (x^2 - rounded x^2) 2^24
  EXPECT_NEAR(output[0], std::exp(score) / (std::exp(score) + 1), 1e-6);
}

TEST_F(Definition, AttentionOverNarrowRowsIsAttentionOverWhatTheyWidenTo) {
  AttentionShape shape{.heads = 2, .kv_heads = 1, .head_dim = 34, .page_tokens = 16, .scale = 0.4f};
  const int length = 4;
  const std::vector<float> query = Gaussian(shape.heads * shape.head_dim, 1);
  std::vector<float> scratch(ComputeBackend::AttentionScratchFloats(1, length));
  for (const KvFormat format : {KvFormat::kF16, KvFormat::kQ8}) {
    std::vector<float> numbers[2], widened[2];
    for (int kind = 0; kind < 2; ++kind) {
      numbers[kind] = Gaussian(length * shape.head_dim, 30 + kind);
      numbers[kind][3] = 0x1p-24f;  // the smallest subnormal half
      widened[kind].resize(numbers[kind].size());
      std::vector<std::byte> row(KvRowBytes(format, shape.head_dim));
      for (int t = 0; t < length; ++t) {
        StoreKvRow(format, &numbers[kind][t * shape.head_dim], shape.head_dim, row.data());
        WidenKvRow(format, row.data(), shape.head_dim, &widened[kind][t * shape.head_dim]);
      }
    }
    const auto attend = [&](KvFormat of, const std::vector<float>(&rows)[2]) {
      shape.kv_format = of;
      const KvPages kept(shape, rows[0], rows[1]);
      std::vector<float> output(query.size());
      const KvRun run{.pages = kept.pages(), .position = length - 1, .tokens = 1};
      backend_->Attention(shape, {&run, 1}, query.data(), output.data(), scratch);
      return output;
    };
    EXPECT_TRUE(SameBits(attend(format, numbers), attend(KvFormat::kF32, widened)));
  }
}

// Whose keys are latent and rotated key, one behind the other, and whose values are the latents: the same bits.
TEST_F(Definition, LatentAttentionIsAttentionOverJoinedKeys) {
  const int heads = 3, rank = 32, rotary_dims = 6, width = rank + rotary_dims, length = 300, tokens = 5;
  const std::vector<float> latents = Gaussian(length * rank, 1), keys = Gaussian(length * rotary_dims, 2);
  const std::vector<float> query = Gaussian(tokens * heads * rank, 3), rotated = Gaussian(tokens * heads * rotary_dims, 4);
  const auto join = [&](const std::vector<float>& first, const std::vector<float>& second) {
    std::vector<float> joined;
    for (size_t row = 0; row < first.size() / rank; ++row) {
      joined.insert(joined.end(), &first[row * rank], &first[row * rank] + rank);
      joined.insert(joined.end(), &second[row * rotary_dims], &second[row * rotary_dims] + rotary_dims);
    }
    return joined;
  };
  for (int format = 0; format < kKvFormatCount; ++format) {
    const auto kv_format = static_cast<KvFormat>(format);
    const AttentionShape shape{
        .heads = heads, .kv_heads = 1, .head_dim = width, .page_tokens = 16, .scale = 0.2f, .kv_format = kv_format};
    const LatentShape latent{
        .heads = heads, .rank = rank, .rotary_dims = rotary_dims, .page_tokens = 16, .scale = 0.2f, .kv_format = kv_format};
    const KvPages pages(shape, join(latents, keys), join(latents, keys));
    const LatentPages rows(latent, latents, keys);
    std::vector<float> scratch(ComputeBackend::LatentScratchFloats(1, length));
    std::vector<float> expected(tokens * heads * width), output(query.size());
    KvRun run{.pages = pages.pages(), .position = length - tokens, .tokens = tokens};
    backend_->Attention(shape, {&run, 1}, join(query, rotated).data(), expected.data(), scratch);
    run.pages = rows.pages();
    backend_->AttendLatent(latent, {&run, 1}, query.data(), rotated.data(), rotary_dims, output.data(), scratch);
    for (int row = 0; row < tokens * heads; ++row) {
      EXPECT_TRUE(SameBits(std::span(output).subspan(row * rank, rank), std::span(expected).subspan(row * width, rank)))
          << row << " " << kKvFormatNames[format];
    }
  }
}

TEST_F(Definition, SoftmaxSumsToOneWhateverTheSize) {
  for (float offset : {0.0f, 1e4f, -1e4f}) {
    std::vector<float> x = Gaussian(3 * 70, 8, 3.0f);
    for (float& value : x) value += offset;
    const std::vector<float> before = x;
    backend_->Softmax(x.data(), 3, 70);
    for (int row = 0; row < 3; ++row) {
      double total = 0;
      for (int i = 0; i < 70; ++i) total += std::exp(double{before[row * 70 + i]} - offset);
      for (int i = 0; i < 70; ++i) {
        EXPECT_NEAR(x[row * 70 + i], std::exp(double{before[row * 70 + i]} - offset) / total, 1e-6);
      }
    }
  }
}

TEST_F(Definition, SoftplusGatesAndGatedRelu) {
  const std::vector<float> gates = {-2.5f, 0.0f, 3.0f}, up = {1.5f, -2.0f, 0.5f};
  std::vector<float> x = {1, 2, 3, 4, 5, 6}, gated = gates;
  backend_->SoftplusGate(x.data(), gates.data(), 3, 2);
  for (int i = 0; i < 6; ++i) {
    const double expected = (i + 1) * std::log1p(std::exp(double{gates[i / 2]}));
    EXPECT_NEAR(x[i], expected, 1.5e-7 * expected) << i;  // two roundings
  }
  backend_->Activate(kReGlu, gated.data(), up.data(), 3, gated.data());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(gated[i], std::max(gates[i], 0.0f) * up[i]) << i;
}

TEST_F(Definition, GeluAndSoftCap) {
  for (float x = -12.0f; x < 12.0f; x += 0.00093f) {
    float gelu = x, capped = x;
    const float up = 1.5f;
    backend_->Activate(kGeGlu, &gelu, &up, 1, &gelu);
    const double turned = std::sqrt(2 / std::numbers::pi) * (double{x} + 0.044715 * double{x} * x * x);
    EXPECT_NEAR(gelu, 0.75 * x * (1 + std::tanh(turned)), 1e-6 * std::max(0.05, std::abs(double{x}))) << x;
    backend_->SoftCap(&capped, 2.5f, 1);
    const double expected = 2.5 * std::tanh(double{x} / 2.5);
    EXPECT_NEAR(capped, expected, 4e-7 * std::abs(expected)) << x;
  }
}

TEST_F(Definition, Elementwise) {
  const std::vector<float> a = Gaussian(100, 1), b = Gaussian(100, 2);
  std::vector<float> out(100), clamped(100), positive(100), squared = a, scaled = a, added = a;
  backend_->Activate(kSwiGlu, a.data(), b.data(), 100, out.data());
  backend_->Activate({GateFunction::kClampedSwiGlu, {.alpha = 1.7f, .limit = 0.8f}}, a.data(), b.data(), 100, clamped.data());
  backend_->Activate(kSquaredRelu, nullptr, squared.data(), 100, squared.data());
  backend_->Activate(kRelu, nullptr, a.data(), 100, positive.data());
  backend_->AddScaled(scaled.data(), b.data(), 0.3f, 100);
  backend_->Add(added.data(), b.data(), 100);
  for (int i = 0; i < 100; ++i) {
    EXPECT_NEAR(out[i], a[i] / (1 + std::exp(-double{a[i]})) * b[i], 1e-6);
    const double gate = std::min(a[i], 0.8f), up = std::clamp(b[i], -0.8f, 0.8f);
    EXPECT_NEAR(clamped[i], (up + 1) * gate / (1 + std::exp(-1.7 * gate)), 1e-6);
    EXPECT_EQ(squared[i], a[i] > 0 ? a[i] * a[i] : 0.0f);
    EXPECT_EQ(positive[i], std::max(a[i], 0.0f));
    EXPECT_EQ(scaled[i], std::fma(0.3f, b[i], a[i]));
    EXPECT_EQ(added[i], a[i] + b[i]);
    EXPECT_NEAR(Sigmoid(a[i]), 1 / (1 + std::exp(-double{a[i]})), 1e-7);
  }
}

}  // namespace
}  // namespace moed
