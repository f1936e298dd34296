#include "core/quant/error_feedback.h"

#include <random>
#include <vector>

#include "core/quant/encoding.h"
#include "gtest/gtest.h"

namespace moed {
namespace error_feedback_test {

constexpr double kDamping = 0.01;

// Inputs of which neighbouring columns have much in common, and their moments.
struct Inputs {
  int cols;
  std::vector<std::vector<float>> rows;
  explicit Inputs(int columns, int count = 400) : cols(columns) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (int i = 0; i < count; ++i) {
      std::vector<float>& row = rows.emplace_back(cols);
      float before = 0;
      for (int c = 0; c < cols; ++c) before = row[c] = 0.9f * before + normal(random) * (c % 5 == 0 ? 3.0f : 1.0f);
    }
  }
  double Moment(int a, int b) const {
    double sum = 0;
    for (const std::vector<float>& row : rows) sum += double{row[a]} * row[b];
    return sum;
  }
  std::vector<float> Triangles(int span) const {
    std::vector<float> moments;
    for (int i = 0; i < cols; ++i) {
      for (int j = i / span * span; j <= i; ++j) moments.push_back(static_cast<float>(Moment(i, j)));
    }
    return moments;
  }
};

// e H e^T, H damped and of spans, is the sum over the columns of weight * (e U)^2.
TEST(ErrorFeedback, FactorsTheMoments) {
  for (const auto& [cols, span] : {std::pair{40, 64}, {96, 32}, {70, 64}}) {
    const Inputs inputs(cols);
    const std::vector<float> moments = inputs.Triangles(span);
    ASSERT_EQ(moments.size(), ErrorFeedback::SpanFloats(cols, span));
    const ErrorFeedback feedback(cols, span, moments, kDamping);
    std::mt19937 random(5);
    std::normal_distribution<double> normal;
    std::vector<double> e(cols);
    for (double& x : e) x = normal(random);
    double direct = 0, factored = 0;
    for (int i = 0; i < cols; ++i) {
      const int begin = i / span * span, end = std::min(begin + span, cols);
      double mean = 0;
      for (int c = begin; c < end; ++c) mean += inputs.Moment(c, c) / (end - begin);
      direct += kDamping * mean * e[i] * e[i];
      for (int j = begin; j < end; ++j) direct += e[i] * e[j] * inputs.Moment(i, j);
      double f = e[i];
      for (int c = feedback.first(i); c < i; ++c) f += e[c] * feedback.asks(i)[c - feedback.first(i)];
      factored += feedback.weight(i) * f * f;
    }
    EXPECT_NEAR(factored / direct, 1, 1e-4) << cols << " " << span;
  }
}

TEST(ErrorFeedback, NothingIsKnownOfInputsThatAreZero) {
  const ErrorFeedback known(64, 32, std::vector<float>(ErrorFeedback::SpanFloats(64, 32)), kDamping), unknown(64);
  for (int column = 0; column < 64; ++column) {
    EXPECT_EQ(known.weight(column), unknown.weight(column));
    for (int c = known.first(column); c < column; ++c) EXPECT_EQ(known.asks(column)[c - known.first(column)], 0);
  }
}

// Of the products with the inputs.
double OutputError(const Encoding& encoding, const Inputs& inputs, const ErrorFeedback& feedback, int rows) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal(0, 0.05f);
  std::vector<float> weights(static_cast<size_t>(rows) * inputs.cols), decoded(inputs.cols);
  for (float& weight : weights) weight = normal(random);
  std::vector<std::byte> packed(PackedBytes(encoding.format, rows, inputs.cols), std::byte{0xff});
  EXPECT_TRUE(EncodeRows(encoding, weights.data(), rows, inputs.cols, packed, 0, &feedback).ok());
  double sum = 0;
  for (int row = 0; row < rows; ++row) {
    DecodeRow(encoding.format, packed.data(), inputs.cols, row, decoded.data());
    for (const std::vector<float>& x : inputs.rows) {
      double error = 0;
      for (int c = 0; c < inputs.cols; ++c) error += (weights[row * inputs.cols + c] - decoded[c]) * x[c];
      sum += error * error;
    }
  }
  return sum;
}

TEST(ErrorFeedback, ProductsComeNearer) {
  const Inputs inputs(100);
  const ErrorFeedback feedback(100, 128, inputs.Triangles(128), kDamping);
  int tested = 0;
  for (const Format& format : Formats()) {
    if (!Makes(QuantizerId::kGptq, format.id)) continue;
    ++tested;
    const double nearest = OutputError({format.id}, inputs, feedback, 21);
    EXPECT_LT(OutputError({format.id, QuantizerId::kGptq}, inputs, feedback, 21), 0.5 * nearest) << format.name;
  }
  EXPECT_GE(tested, 5);
}

TEST(ErrorFeedback, WhatDoesNotFitIsNamed) {
  std::vector<float> weights(8 * 32);
  weights[3 * 32 + 5] = 1e6f;
  std::vector<std::byte> packed(PackedBytes(FormatId::kQ2S, 8, 32));
  const absl::Status status = EncodeRows({FormatId::kQ2S, QuantizerId::kGptq}, weights.data(), 8, 32, packed, 16);
  EXPECT_EQ(status.message(), "row 19, column 5: weight 1e+06 does not fit q2s (finite, magnitude up to 240)");
}

}  // namespace error_feedback_test
}  // namespace moed
