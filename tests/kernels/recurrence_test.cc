// Layers with a state: the convolution, the gates, the gated delta rule and the state space, against plain computations in
// double; every backend gives the bits of "scalar", however the tokens are cut and whoever else is in the call.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/exactness.h"

namespace moed {
namespace {

constexpr int kTokens = 21;
constexpr float kGarbage = 1e30f;  // what states hold before their sequences begin

struct Sequence {
  std::vector<float> state;
  int position = 0;
};

// Of two sequences, in calls of so many tokens of each: the first one's rows before the second one's.
using Cuts = std::vector<std::pair<int, int>>;
const Cuts kCuts[] = {{{kTokens, 0}, {0, kTokens}},
                      {{kTokens, kTokens}},
                      {{1, 0}, {1, 2}, {5, 1}, {0, 1}, {14, 17}},
                      Cuts(kTokens, {1, 1}),
                      {{2, 20}, {19, 1}}};

// operation(runs, rows before them of the first and of the second sequence) for every call. The outputs of both.
class Cutter {
 public:
  Cutter(int64_t state_floats, int64_t in, int64_t out) : in_(in), out_(out) {
    for (Sequence& sequence : sequences_) sequence.state.assign(state_floats, kGarbage);
  }
  template <class Operation>
  std::vector<float> Run(const Cuts& cuts, const std::vector<float>& x, const Operation& operation) {
    std::vector<float> outputs(2 * kTokens * out_);
    for (const auto& [first, second] : cuts) {
      std::vector<StateRun> runs;
      std::vector<float> rows;
      for (const auto& [s, count] : {std::pair(0, first), std::pair(1, second)}) {
        if (count == 0) continue;
        runs.push_back({sequences_[s].state.data(), sequences_[s].position, count});
        const float* from = x.data() + (s * kTokens + sequences_[s].position) * in_;
        rows.insert(rows.end(), from, from + count * in_);
      }
      std::vector<float> got((first + second) * out_);
      operation(runs, Which(first, second), rows.data(), got.data());
      const float* at = got.data();
      for (const auto& [s, count] : {std::pair(0, first), std::pair(1, second)}) {
        std::copy_n(at, count * out_, outputs.data() + (s * kTokens + sequences_[s].position) * out_);
        at += count * out_;
        sequences_[s].position += count;
      }
    }
    return outputs;
  }

 private:
  // The rows of a call, as rows of all.
  std::vector<int> Which(int first, int second) const {
    std::vector<int> which;
    for (int i = 0; i < first; ++i) which.push_back(sequences_[0].position + i);
    for (int i = 0; i < second; ++i) which.push_back(kTokens + sequences_[1].position + i);
    return which;
  }
  int64_t in_, out_;
  Sequence sequences_[2];
};

struct Convolution {
  ConvolutionShape shape;
  bool biased = false;
  std::vector<float> x = Gaussian(size_t{2} * kTokens * shape.channels, 1), weights = Gaussian(shape.channels * shape.taps, 2);
  std::vector<float> bias = Gaussian(shape.channels, 5);

  std::vector<float> On(ComputeBackend& backend, const Cuts& cuts) const {
    ConvolutionShape shape = this->shape;
    if (biased) shape.bias = bias.data();
    Cutter cutter(int64_t{shape.taps - 1} * shape.channels, shape.channels, shape.channels);
    return cutter.Run(cuts, x, [&](std::span<const StateRun> runs, const std::vector<int>&, const float* rows, float* y) {
      backend.Convolve(shape, runs, rows, weights.data(), y);
      EXPECT_EQ(backend.Fence(), absl::OkStatus());
    });
  }
};

// Shape: of the delta rule, or of the state space.
template <class Shape>
struct Rule {
  Shape shape;
  std::vector<float> x = Gaussian(size_t{2} * kTokens * shape.row(), 3, 0.5f), decay, rate;
  std::vector<float> skip = Gaussian(shape.value_heads, 6);

  explicit Rule(Shape of) : shape(of) {
    const size_t heads = size_t{2} * kTokens * shape.value_heads;
    for (const float number : Gaussian(heads * decays(), 4)) decay.push_back(1 / (1 + std::exp(-number)));
    for (const float number : Gaussian(heads, 4)) rate.push_back(1 / (1 + std::exp(number)));
  }
  int decays() const {  // of a head
    if constexpr (std::is_same_v<Shape, DeltaRuleShape>) return shape.decays();
    return 1;
  }
  std::vector<float> On(ComputeBackend& backend, const Cuts& cuts) const {
    Cutter cutter(int64_t{shape.value_heads} * shape.key_dim * shape.value_dim, shape.row(), shape.output_row());
    return cutter.Run(cuts, x, [&](std::span<const StateRun> runs, const std::vector<int>& which, const float* rows, float* out) {
      std::vector<float> decays, rates;
      for (const int row : which) {
        const auto gates = [&](const std::vector<float>& from, int width, std::vector<float>& to) {
          to.insert(to.end(), from.begin() + row * width, from.begin() + (row + 1) * width);
        };
        gates(decay, shape.value_heads * this->decays(), decays), gates(rate, shape.value_heads, rates);
      }
      if constexpr (std::is_same_v<Shape, DeltaRuleShape>) {
        backend.DeltaRule(shape, runs, rows, decays.data(), rates.data(), out);
      } else {
        backend.StateSpace(shape, runs, rows, decays.data(), rates.data(), skip.data(), out);
      }
      EXPECT_EQ(backend.Fence(), absl::OkStatus());
    });
  }
};

class RecurrenceDefinition : public ::testing::Test {
 protected:
  InlineExecutor executor_;
  std::unique_ptr<ComputeBackend> backend_ = MakeComputeBackend("scalar", executor_).value();
};

TEST_F(RecurrenceDefinition, ConvolutionSeesTheTapsBeforeARow) {
  for (const auto& [biased, silu] : {std::pair(false, true), std::pair(true, true), std::pair(false, false)}) {
    const Convolution convolution{{.channels = 5, .taps = 4, .silu = silu}, biased};
    const std::vector<float> y = convolution.On(*backend_, kCuts[0]);
    for (int row = 0; row < 2 * kTokens; ++row) {
      for (int c = 0; c < 5; ++c) {
        double sum = biased ? convolution.bias[c] : 0;
        for (int back = 0; back < 4 && back <= row % kTokens; ++back) {
          sum += double{convolution.x[(row - back) * 5 + c]} * convolution.weights[(3 - back) * 5 + c];
        }
        EXPECT_NEAR(y[row * 5 + c], silu ? sum / (1 + std::exp(-sum)) : sum, 1e-6) << row;
      }
    }
  }
}

TEST_F(RecurrenceDefinition, DeltaGates) {
  const int rows = 3, heads = 4;
  const float rates[heads] = {-0.01f, -0.3f, -2.0f, -15.0f};
  for (const int decays : {1, 5}) {
    const int width = heads * decays;
    const std::vector<float> a = Gaussian(rows * width, 1, 4.0f), b = Gaussian(rows * heads, 2, 4.0f), bias = Gaussian(width, 3);
    std::vector<float> decay = a, rate = b;
    backend_->DeltaGates(decay.data(), rate.data(), bias.data(), rates, rows, heads, decays);
    for (int i = 0; i < rows * width; ++i) {
      const double step = std::log1p(std::exp(double{a[i]} + bias[i % width]));
      EXPECT_NEAR(decay[i], std::exp(rates[i / decays % heads] * step), 1e-6);
    }
    for (int i = 0; i < rows * heads; ++i) EXPECT_NEAR(rate[i], 1 / (1 + std::exp(-double{b[i]})), 1e-6);
  }
}

TEST_F(RecurrenceDefinition, StepSizes) {
  const int rows = 3, heads = 4;
  const std::vector<float> x = Gaussian(rows * heads, 1, 4.0f), bias = Gaussian(heads, 3);
  const float rates[heads] = {-0.01f, -0.3f, -2.0f, -15.0f};
  std::vector<float> steps = x, decays(rows * heads);
  backend_->StepSizes(steps.data(), bias.data(), rates, rows, heads, decays.data());
  for (int i = 0; i < rows * heads; ++i) {
    const double step = std::log1p(std::exp(double{x[i]} + bias[i % heads]));
    EXPECT_NEAR(steps[i], step, 1e-6 * (1 + step));
    EXPECT_NEAR(decays[i], std::exp(rates[i % heads] * step), 1e-6);
  }
}

TEST_F(RecurrenceDefinition, Multiply) {
  for (const int n : {1, 7, 2500}) {
    std::vector<float> x = Gaussian(n, 1);
    const std::vector<float> before = x, by = Gaussian(n, 2);
    backend_->Multiply(x.data(), by.data(), n);
    for (int i = 0; i < n; ++i) EXPECT_EQ(x[i], before[i] * by[i]);
  }
}

// As the paper's equation: S = decay S (1 - rate k k^T) + rate v k^T, here with the state transposed. Decays may be those of the
// keys' dimensions.
void ExpectDeltaRule(const Rule<DeltaRuleShape>& rule, const std::vector<float>& output, const std::array<int, 4>& key_heads) {
  for (int head = 0; head < 4; ++head) {
    for (int first : {0, kTokens}) {
      double state[5][3] = {};
      for (int token = 0; token < kTokens; ++token) {
        const float* row = rule.x.data() + (first + token) * rule.shape.row();
        const float* q = row + key_heads[head] * 5;
        const float* k = q + 10;
        const float* v = row + 20 + head * 3;
        const int gate = (first + token) * 4 + head, decays = rule.decays();
        const auto decay = [&](int i) { return double{rule.decay[gate * decays + i % decays]}; };
        const double rate = rule.rate[gate];
        for (int j = 0; j < 3; ++j) {
          double held = 0, read = 0;
          for (int i = 0; i < 5; ++i) held += decay(i) * state[i][j] * k[i];
          for (int i = 0; i < 5; ++i) state[i][j] = decay(i) * state[i][j] + rate * (v[j] - held) * k[i];
          for (int i = 0; i < 5; ++i) read += state[i][j] * q[i];
          EXPECT_NEAR(output[(first + token) * 12 + head * 3 + j], 0.4 * read, 1e-5) << head << " " << token;
        }
      }
    }
  }
}

TEST_F(RecurrenceDefinition, DeltaRule) {
  DeltaRuleShape shape = {.key_heads = 2, .value_heads = 4, .key_dim = 5, .value_dim = 3, .scale = 0.4f};
  for (const auto& [in_turn, by_channel] : {std::pair(false, false), std::pair(true, false), std::pair(false, true)}) {
    shape.key_heads_in_turn = in_turn;
    shape.decay_by_channel = by_channel;
    const Rule rule(shape);
    ExpectDeltaRule(rule, rule.On(*backend_, kCuts[0]), in_turn ? std::array{0, 1, 0, 1} : std::array{0, 0, 1, 1});
  }
}

// Mamba-2's: S = decay S + step v k^T, with the state transposed; read, and the value added.
TEST_F(RecurrenceDefinition, StateSpace) {
  const Rule rule(StateSpaceShape{.key_heads = 2, .value_heads = 4, .key_dim = 5, .value_dim = 3});
  const std::vector<float> output = rule.On(*backend_, kCuts[0]);
  for (int head = 0; head < 4; ++head) {
    for (int first : {0, kTokens}) {
      double state[5][3] = {};
      for (int token = 0; token < kTokens; ++token) {
        const float* row = rule.x.data() + (first + token) * rule.shape.row();
        const float* v = row + head * 3;
        const float* k = row + 12 + head / 2 * 5;
        const float* q = k + 10;
        const double decay = rule.decay[(first + token) * 4 + head], step = rule.rate[(first + token) * 4 + head];
        for (int j = 0; j < 3; ++j) {
          double read = double{rule.skip[head]} * v[j];
          for (int i = 0; i < 5; ++i) state[i][j] = decay * state[i][j] + step * v[j] * k[i];
          for (int i = 0; i < 5; ++i) read += state[i][j] * q[i];
          EXPECT_NEAR(output[(first + token) * 12 + head * 3 + j], read, 1e-5) << head << " " << token;
        }
      }
    }
  }
}

class RecurrenceExactness : public Exactness {
 protected:
  template <class Operation>
  void ExpectSameBitsHoweverCut(const Operation& operation) {
    const std::vector<float> expected = operation.On(*scalar_, kCuts[0]);
    for (const Cuts& cuts : kCuts) {
      EXPECT_TRUE(SameBits(operation.On(*backend_, cuts), expected)) << "cut " << &cuts - kCuts;
    }
  }
};

TEST_P(RecurrenceExactness, Convolution) {
  for (const int channels : {1, 7, 8, 33, 256, 257, 700}) {
    for (const int taps : {2, 4, kMostTaps}) ExpectSameBitsHoweverCut(Convolution{{channels, taps}});
    ExpectSameBitsHoweverCut(Convolution{{.channels = channels, .taps = 3, .silu = false}});
    ExpectSameBitsHoweverCut(Convolution{{.channels = channels, .taps = 4}, true});
  }
}

TEST_P(RecurrenceExactness, DeltaRule) {
  for (const int value_dim : {1, 3, 4, 7, 8, 9, 16, 31, 32, 33, 45, 64, 128}) {
    DeltaRuleShape shape{.key_heads = 2, .value_heads = 6, .key_dim = value_dim % 10 + 1, .value_dim = value_dim, .scale = 0.3f};
    ExpectSameBitsHoweverCut(Rule(shape));
    shape.decay_by_channel = true;
    ExpectSameBitsHoweverCut(Rule(shape));
  }
  ExpectSameBitsHoweverCut(
      Rule(DeltaRuleShape{.key_heads = 1, .value_heads = 2, .key_dim = 128, .value_dim = 128, .scale = 0.1f}));
  ExpectSameBitsHoweverCut(Rule(
      DeltaRuleShape{.key_heads = 2, .value_heads = 6, .key_dim = 7, .value_dim = 16, .scale = 0.3f, .key_heads_in_turn = true}));
}

TEST_P(RecurrenceExactness, StateSpace) {
  for (const int value_dim : {1, 3, 4, 7, 8, 9, 16, 31, 32, 33, 45, 64, 128}) {
    ExpectSameBitsHoweverCut(
        Rule(StateSpaceShape{.key_heads = 2, .value_heads = 6, .key_dim = value_dim % 10 + 1, .value_dim = value_dim}));
  }
  ExpectSameBitsHoweverCut(Rule(StateSpaceShape{.key_heads = 1, .value_heads = 2, .key_dim = 128, .value_dim = 64}));
}

TEST_P(RecurrenceExactness, Multiply) {
  for (const int n : {1, 31, 2500, 70000}) {
    std::vector<float> expected = Gaussian(n, 1), found = expected;
    const std::vector<float> by = Gaussian(n, 2);
    scalar_->Multiply(expected.data(), by.data(), n);
    backend_->Multiply(found.data(), by.data(), n);
    EXPECT_EQ(backend_->Fence(), absl::OkStatus());
    EXPECT_TRUE(SameBits(found, expected)) << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, RecurrenceExactness,
                         ::testing::Combine(::testing::ValuesIn(BackendNames()), ::testing::Values(1, 3)), [](const auto& info) {
                           return TestName(std::get<0>(info.param)) + "_" + std::to_string(std::get<1>(info.param)) + "_threads";
                         });

INSTANTIATE_TEST_SUITE_P(InEmulation, RecurrenceExactness, ::testing::Values(std::tuple(kCudaEmulated, 1)),
                         [](const auto& info) { return TestName(std::get<0>(info.param)); });

}  // namespace
}  // namespace moed
