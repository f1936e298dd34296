// The scalar definition against plain computations in double.
#include <cmath>
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
  std::vector<float> x(64, 1.0f);
  x[40] = std::numeric_limits<float>::infinity();
  for (const Format& format : Formats()) {
    for (float y : Multiply(*backend_, RandomMatrix(format.id, 9, 64, 2).view, x, 1)) {
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
    for (auto [rows, cols] : {std::pair{1, 1}, {8, 32}, {13, 45}, {40, 256}}) {
      const int tokens = 2;
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
  backend_->RmsNorm(x.data(), weight.data(), 1e-5f, rows, cols, y.data());
  for (int row = 0; row < rows; ++row) {
    double squares = 0;
    for (int i = 0; i < cols; ++i) squares += double{x[row * cols + i]} * x[row * cols + i];
    for (int i = 0; i < cols; ++i) {
      EXPECT_NEAR(y[row * cols + i], x[row * cols + i] * weight[i] / std::sqrt(squares / cols + 1e-5), 1e-5);
    }
  }
}

TEST_F(Definition, RopeRotatesHalves) {
  const int tokens = 2, heads = 3, head_dim = 10, stride = 41;
  const std::vector<float> x = Gaussian(tokens * stride, 6);
  const std::vector<int32_t> positions = {7, 100000};
  std::vector<float> inv_freq(head_dim / 2);
  for (int i = 0; i < head_dim / 2; ++i) inv_freq[i] = static_cast<float>(std::pow(10000.0, -2.0 * i / head_dim));
  std::vector<float> y = x;
  backend_->Rope(y.data(), tokens, stride, heads, head_dim, positions.data(), inv_freq.data());
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

TEST_F(Definition, AttentionOverPages) {
  const AttentionShape shape{.heads = 6, .kv_heads = 2, .head_dim = 5, .page_tokens = 4, .scale = 0.4f};
  const int length = 10, token_floats = shape.kv_heads * shape.head_dim;
  const std::vector<float> query = Gaussian(shape.heads * shape.head_dim, 1);
  std::vector<std::vector<float>> keys, values;
  std::vector<const void*> key_pages, value_pages;
  for (int page = 0; page < 3; ++page) {
    keys.push_back(Gaussian(shape.page_tokens * token_floats, 10 + page));
    values.push_back(Gaussian(shape.page_tokens * token_floats, 20 + page));
    key_pages.push_back(keys.back().data());
    value_pages.push_back(values.back().data());
  }
  std::vector<float> output(query.size());
  std::vector<float> scratch(ComputeBackend::AttentionScratchFloats(shape, 1, length));
  const AttentionJob job{query.data(), output.data(), key_pages, value_pages, length};
  backend_->Attention(shape, {&job, 1}, scratch);
  for (int head = 0; head < shape.heads; ++head) {
    const auto at = [&](int t) { return (head / 3 * shape.page_tokens + t % shape.page_tokens) * shape.head_dim; };
    std::vector<double> weight(length);
    for (int t = 0; t < length; ++t) {
      double score = 0;
      for (int d = 0; d < shape.head_dim; ++d) score += query[head * 5 + d] * keys[t / 4][at(t) + d];
      weight[t] = std::exp(shape.scale * score);
    }
    const double total = std::accumulate(weight.begin(), weight.end(), 0.0);
    for (int d = 0; d < shape.head_dim; ++d) {
      double expected = 0;
      for (int t = 0; t < length; ++t) expected += weight[t] / total * values[t / 4][at(t) + d];
      EXPECT_NEAR(output[head * 5 + d], expected, 1e-5);
    }
  }
}

TEST_F(Definition, AttentionOverNarrowRowsIsAttentionOverWhatTheyWidenTo) {
  AttentionShape shape{.heads = 2, .kv_heads = 1, .head_dim = 34, .page_tokens = 4, .scale = 0.4f};
  const int length = 4;
  const std::vector<float> query = Gaussian(shape.heads * shape.head_dim, 1);
  std::vector<float> scratch(ComputeBackend::AttentionScratchFloats(shape, 1, length));
  for (const KvFormat format : {KvFormat::kF16, KvFormat::kQ8}) {
    std::vector<unsigned char> rows[2];
    std::vector<float> widened[2];
    for (int kind = 0; kind < 2; ++kind) {
      std::vector<float> numbers = Gaussian(length * shape.head_dim, 30 + kind);
      numbers[3] = 0x1p-24f;  // the smallest subnormal half
      const int64_t row_bytes = KvRowBytes(format, shape.head_dim);
      rows[kind].resize(length * row_bytes);
      widened[kind].resize(numbers.size());
      for (int t = 0; t < length; ++t) {
        StoreKvRow(format, &numbers[t * shape.head_dim], shape.head_dim, &rows[kind][t * row_bytes]);
        WidenKvRow(format, &rows[kind][t * row_bytes], shape.head_dim, &widened[kind][t * shape.head_dim]);
      }
    }
    const auto attend = [&](KvFormat of, const void* keys, const void* values) {
      shape.kv_format = of;
      std::vector<float> output(query.size());
      const AttentionJob job{query.data(), output.data(), {&keys, 1}, {&values, 1}, length};
      backend_->Attention(shape, {&job, 1}, scratch);
      return output;
    };
    EXPECT_TRUE(
        SameBits(attend(format, rows[0].data(), rows[1].data()), attend(KvFormat::kF32, widened[0].data(), widened[1].data())));
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

TEST_F(Definition, Elementwise) {
  const std::vector<float> a = Gaussian(100, 1), b = Gaussian(100, 2);
  std::vector<float> out(100), scaled = a, added = a;
  backend_->SwiGlu(a.data(), b.data(), 100, out.data());
  backend_->AddScaled(scaled.data(), b.data(), 0.3f, 100);
  backend_->Add(added.data(), b.data(), 100);
  for (int i = 0; i < 100; ++i) {
    EXPECT_NEAR(out[i], a[i] / (1 + std::exp(-double{a[i]})) * b[i], 1e-6);
    EXPECT_EQ(scaled[i], std::fma(0.3f, b[i], a[i]));
    EXPECT_EQ(added[i], a[i] + b[i]);
    EXPECT_NEAR(Sigmoid(a[i]), 1 / (1 + std::exp(-double{a[i]})), 1e-7);
  }
}

}  // namespace
}  // namespace moed
