// Kernels of products, rows, elements and states, and what a fence tells of their faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "tests/kernels/cuda/kernels_beside_scalar.h"
#include "tests/kernels/cuda/traffic/product_traffic.h"

namespace moed {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class CudaKernels : public EachKernels {
 protected:
  void CompareProducts(FormatId format, int rows, int cols, int tokens) {
    SCOPED_TRACE(StrCat(FormatOf(format).name, ", ", rows, "x", cols, ", ", tokens, " tokens"));
    const MatrixView weights = Keep(RandomMatrix(format, rows, cols, 3));
    const InputForms forms = InputForms::Of({format});
    const float* const x = Keep(Gaussian(static_cast<size_t>(tokens) * cols, 4));
    const float* const bias = Keep(Gaussian(rows, 5));
    const auto compare = [&](const MatMulJob& job) {
      Compare(std::vector<float>(static_cast<size_t>(tokens) * rows, 0.3f), [&](ComputeBackend& backend, float* y) {
        const Activations input = backend.Prepare(x, tokens, cols, cols, forms, Storage(ActivationBytes(tokens, cols, forms)));
        MatMulJob with = job;
        with.input = &input;
        with.output = y;
        backend.MatMul({&with, 1});
      });
    };
    compare({.weights = weights, .output_stride = rows});
    compare({.weights = weights, .output_stride = rows, .bias = bias, .scale = 0.7f, .adds = true});
    if (tokens > 1) return;
    MatMulJob chosen = {.weights = weights, .output_stride = rows, .bias = Keep(Gaussian(size_t{2} * rows, 6))};
    chosen.weights.data = nullptr;
    chosen.choice = Keep(std::vector<ExpertChoice>{{.expert = 1}});
    chosen.matrices = {Keep(std::vector<const std::byte*>{nullptr, weights.data}), 2};
    compare(chosen);
  }
};

class WatchedKernels : public KernelsBesideScalar, public ::testing::Test {
 protected:
  WatchedKernels() : KernelsBesideScalar("cuda-emulated", cuda::kEmulatedKernels, Watched()) {}
};

TEST_P(CudaKernels, Products) {
  for (const Format& format : Formats()) {
    for (const int tokens : {1, 3, 11}) CompareProducts(format.id, 19, ColumnsFor(format, 100), tokens);
  }
}

// Eight rows of the matrix at a time. A row whose numbers are too large or too small for 16 bits is as near as others are.
TEST_P(CudaKernels, ProductsOfHalvesAreNear) {
  if (!backend_->OpenFastMatmul().ok()) GTEST_SKIP() << "no library for them";
  constexpr int kRows = 19, kTokens = 5;
  for (const Format& format : Formats()) {
    SCOPED_TRACE(format.name);
    const int cols = ColumnsFor(format, 100);
    const InputForms forms = InputForms::Of({format.id});
    std::vector<float> x = Gaussian(static_cast<size_t>(kTokens) * cols, 4);
    for (int i = 0; i < cols; ++i) x[i] *= 0x1p20f, x[cols + i] *= 0x1p-40f;
    const MatrixView weights = Keep(RandomMatrix(format.id, kRows, cols, 3));
    const float* const input = Keep(x);
    const float* const bias = Keep(std::vector<float>(kRows));
    const auto product = [&](ComputeBackend& backend, std::span<std::byte> halves, float scale, bool adds) {
      const Activations prepared = backend.Prepare(input, kTokens, cols, cols, forms, Storage(ActivationBytes(kTokens, cols)));
      float* const y = Keep(std::vector<float>(kTokens * kRows));
      MatMulJob job = {weights, &prepared, y, kRows, bias, scale, adds};
      job.halves = halves;
      backend.MatMul({&job, 1});
      EXPECT_EQ(backend.Fence(), absl::OkStatus());
      return y;
    };
    for (const bool adds : {false, true}) {
      const std::span<std::byte> halves = Storage(ComputeBackend::HalfProductBytes(kTokens, 8, cols));
      const float* const found = product(*backend_, halves, 0.7f, adds);
      const float* const exact = product(*scalar_, {}, 0.7f, adds);
      for (int token = 0; token < kTokens; ++token) {
        double squares = 0, apart = 0;
        for (int row = 0; row < kRows; ++row) {
          const double expected = exact[token * kRows + row];
          squares += expected * expected;
          apart += (found[token * kRows + row] - expected) * (found[token * kRows + row] - expected);
        }
        EXPECT_LE(std::sqrt(apart), 2e-3 * std::sqrt(squares)) << "token " << token;
      }
    }
    EXPECT_TRUE(
        SameBits({product(*backend_, {}, 1, false), kTokens * kRows}, {product(*scalar_, {}, 1, false), kTokens * kRows}));
  }
}

// Chunks of a panel that end within it, and panels that begin between two units of 16 bytes.
TEST_P(CudaKernels, ProductsOfPanelsAnywhere) {
  for (const Format& format : Formats()) {
    for (const int blocks : {1, 2, 15, 31}) CompareProducts(format.id, 35, blocks * format.block_columns, 1);
    CompareProducts(format.id, 19, 15 * format.block_columns, 9);
  }
}

// Of the weights hardly more is moved than they have, 16 bytes a lane.
TEST(Weights, AreReadOnceAndInWideRequests) {
  for (const Format& format : Formats()) {
    for (const int tokens : {1, 8}) {
      const ProductTraffic traffic = TrafficOfProduct(format, tokens);
      EXPECT_GE(traffic.moved_over_matrix(), 1.0) << format.name << ", " << tokens << " tokens";
      EXPECT_LE(traffic.moved_over_matrix(), 1.05) << format.name << ", " << tokens << " tokens";
      EXPECT_EQ(traffic.wide_share(), 1.0) << format.name << ", " << tokens << " tokens";
    }
  }
}

TEST_P(CudaKernels, EmbedAndGather) {
  const std::vector<TokenId> tokens = {TokenId(18), TokenId(0), TokenId(7)};
  for (const Format& format : Formats()) {
    const int cols = ColumnsFor(format, 70);
    const MatrixView matrix = Keep(RandomMatrix(format.id, 19, cols, 3));
    Compare(std::vector<float>(tokens.size() * cols),
            [&](ComputeBackend& backend, float* y) { backend.Embed(matrix, tokens, y); });
  }
  const std::vector<int32_t> rows = {4, 0, 4};
  const float* const x = Keep(Gaussian(5 * 70, 1));
  Compare(std::vector<float>(3 * 70), [&](ComputeBackend& backend, float* y) { backend.GatherRows(x, 70, rows, y); });
  Compare(std::vector<std::byte>(ActivationBytes(3, 70)), [&](ComputeBackend& backend, std::byte* y) {
    const Activations all = backend.Prepare(x, 5, 70, 70, kAllForms, Storage(ActivationBytes(5, 70)));
    backend.Gather(all, rows, {y, ActivationBytes(3, 70)});
  });
}

// A row that its threads hold, rows of few threads, and a row that is longer than what they hold.
TEST_P(CudaKernels, Rows) {
  for (const auto& sizes : std::vector<std::pair<int, int>>{{2, 1100}, {33, 70}, {33, 520}, {1, 8240}}) {
    const int rows = sizes.first, cols = sizes.second;
    SCOPED_TRACE(StrCat(rows, "x", cols));
    const float* const weight = Keep(Gaussian(cols, 2));
    const float* const bias = Keep(Gaussian(cols, 3));
    const std::vector<float> x = Gaussian(static_cast<size_t>(rows) * cols, 1);
    Compare(x, [&](ComputeBackend& b, float* y) { b.Normalize({.weight = weight, .eps = 1e-6f}, y, rows, cols, y); });
    Compare(x, [&](ComputeBackend& b, float* y) { b.Normalize({.eps = 1e-6f}, y, rows, cols, y); });
    Compare(x, [&](ComputeBackend& b, float* y) { b.Normalize({weight, bias, 1e-6f}, y, rows, cols, y); });
    Compare(x, [&](ComputeBackend& b, float* y) { b.Softmax(y, rows, cols); });
  }
}

TEST_P(CudaKernels, Elements) {
  const int n = 3300;
  const std::vector<float> x = Gaussian(n, 1);
  const float* const other = Keep(Gaussian(n, 4));
  const std::vector<std::function<void(ComputeBackend&, float*)>> operations = {
      [&](ComputeBackend& b, float* y) { b.Scale(y, 0.3f, n); },
      [&](ComputeBackend& b, float* y) { b.Multiply(y, other, n); },
      [&](ComputeBackend& b, float* y) { b.SigmoidGate(y, y, n); },
      [&](ComputeBackend& b, float* y) { b.Activate(kSwiGlu, y, other, n, y); },
      [&](ComputeBackend& b, float* y) {
        b.Activate({GateFunction::kClampedSwiGlu, {1.702f, 7.0f}}, other, y, n, y);
      },
      [&](ComputeBackend& b, float* y) { b.Activate(kGeGlu, y, other, n, y); },
      [&](ComputeBackend& b, float* y) { b.Activate(kSquaredRelu, nullptr, y, n, y); },
      [&](ComputeBackend& b, float* y) { b.Activate(kRelu, nullptr, y, n, y); },
      [&](ComputeBackend& b, float* y) { b.Activate(kReGlu, other, y, n, y); },
      [&](ComputeBackend& b, float* y) { b.SoftplusGate(y, other, n, 1); },
      [&](ComputeBackend& b, float* y) { b.SoftplusGate(y, other, n / 12, 12); },
      [&](ComputeBackend& b, float* y) { b.SoftCap(y, 1.5f, n); },
      [&](ComputeBackend& b, float* y) { b.AddScaled(y, other, 0.37f, n); },
      [&](ComputeBackend& b, float* y) { b.Add(y, other, n); },
  };
  for (const auto& operation : operations) Compare(x, operation);
}

TEST_P(CudaKernels, WhatIsPreparedAtOnce) {
  const int rows = 3, cols = 300;
  const size_t bytes = ActivationBytes(rows, cols);
  const float* const x = Keep(Gaussian(rows * cols, 1));
  const float* const weight = Keep(Gaussian(cols, 2));
  const float* const bias = Keep(Gaussian(cols, 3));
  for (const Norm& norm : {Norm{.weight = weight, .eps = 1e-6f}, Norm{weight, bias, 1e-6f}}) {
    Compare(std::vector<std::byte>(bytes), [&](ComputeBackend& backend, std::byte* prepared) {
      backend.NormalizeAndPrepare(norm, x, rows, cols, Keep(std::vector<float>(rows * cols)), kAllForms, {prepared, bytes});
    });
  }
  for (const GateFunction function : {GateFunction::kSwiGlu, GateFunction::kClampedSwiGlu, GateFunction::kGeGlu,
                                      GateFunction::kSquaredRelu, GateFunction::kRelu, GateFunction::kReGlu}) {
    Compare(std::vector<std::byte>(bytes), [&](ComputeBackend& backend, std::byte* prepared) {
      const float* const gate = HasGate(function) ? x : nullptr;
      backend.ActivateAndPrepare({function, {1.702f, 7.0f}}, gate, Keep(Gaussian(rows * cols, 4)), rows, cols, kAllForms,
                                 {prepared, bytes});
    });
  }
}

TEST_P(CudaKernels, States) {
  const int rows = 4, heads = 4;
  const float* const gates = Keep(std::vector<float>(rows * heads, 0.4f));
  const float* const decays = Keep(Gaussian(rows * heads * 5, 7, 0.3f));
  const float* const skip = Keep(Gaussian(heads, 1));
  const float* const rates = Keep(std::vector<float>(heads, -0.3f));
  const float* const weights = Keep(Gaussian(4 * 70, 2));
  const float* const x = Keep(Gaussian(rows * 200, 3));
  // The state of a sequence, then what comes out.
  const auto compare = [&](int64_t state_floats, int64_t output_floats, const auto& operation) {
    Compare(Gaussian(state_floats + output_floats, 5), [&](ComputeBackend& backend, float* state) {
      const StateRun runs[] = {{.state = state, .position = 6, .tokens = rows}};
      operation(backend, runs, state + state_floats);
    });
  };
  const DeltaRuleShape delta{.key_heads = 2, .value_heads = heads, .key_dim = 5, .value_dim = 40, .scale = 0.3f};
  DeltaRuleShape by_channel = delta;
  by_channel.decay_by_channel = true;
  const StateSpaceShape space{.key_heads = 2, .value_heads = heads, .key_dim = 5, .value_dim = 40};
  ASSERT_EQ(delta.row(), 180);
  compare(heads * 200, rows * 160, [&](ComputeBackend& backend, std::span<const StateRun> runs, float* output) {
    backend.DeltaRule(delta, runs, x, gates, gates, output);
  });
  compare(heads * 200, rows * 160, [&](ComputeBackend& backend, std::span<const StateRun> runs, float* output) {
    backend.DeltaRule(by_channel, runs, x, decays, gates, output);
  });
  compare(heads * 200, rows * 160, [&](ComputeBackend& backend, std::span<const StateRun> runs, float* output) {
    backend.StateSpace(space, runs, x, gates, gates, skip, output);
  });
  compare(3 * 70, rows * 70, [&](ComputeBackend& backend, std::span<const StateRun> runs, float* y) {
    backend.Convolve({.channels = 70, .taps = 4, .bias = x}, runs, x, weights, y);
  });
  Compare(Gaussian(2 * rows * heads, 6), [&](ComputeBackend& backend, float* a) {
    backend.DeltaGates(a, a + rows * heads, skip, rates, rows, heads, 1);
    backend.DeltaGates(a, a + rows * heads, x, rates, rows / 2, heads / 2, 4);
    backend.StepSizes(a, skip, rates, rows, heads, a + rows * heads);
  });
}

// From the second time on it is a graph, whatever lies in its arrays.
TEST_P(CudaKernels, AChainThatComesAgain) {
  const int rows = 2, cols = 96, n = rows * cols;
  const MatrixView weights = Keep(RandomMatrix(FormatId::kQ4, cols, cols, 3));
  const InputForms forms = InputForms::Of({FormatId::kQ4});
  float* const x = Keep(std::vector<float>(n));
  float* const y = Keep(std::vector<float>(n));
  const std::span<std::byte> storage = Storage(ActivationBytes(rows, cols, forms));
  for (uint32_t time = 0; time < 4; ++time) {
    const std::vector<float> given = Gaussian(n, time);
    std::vector<std::vector<float>> results;
    for (ComputeBackend* backend : {scalar_.get(), backend_.get()}) {
      std::ranges::copy(given, x);
      const Activations input = backend->NormalizeAndPrepare({.eps = 1e-6f}, x, rows, cols, y, forms, storage);
      const MatMulJob job{.weights = weights, .input = &input, .output = x, .output_stride = cols, .adds = true};
      backend->MatMul({&job, 1});
      backend->Activate(kSwiGlu, x, y, n, y);
      ASSERT_EQ(backend->Fence(), absl::OkStatus());
      results.emplace_back(y, y + n);
    }
    EXPECT_TRUE(SameBits(results[1], results[0])) << time;
  }
}

// Memory of the host's own is none that a device reaches here. Every later fence tells it as well.
TEST_F(WatchedKernels, TheFenceTellsAFaultAndItsPlace) {
  std::vector<float> elsewhere(8);
  backend_->Scale(elsewhere.data(), 2, 8);
  for (int fence = 0; fence < 2; ++fence) {
    const absl::Status failed = backend_->Fence();
    EXPECT_EQ(failed.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(failed.message()),
                AllOf(HasSubstr("the compute backend 'cuda-emulated' failed: "), HasSubstr("which no allocation holds")));
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, CudaKernels, ::testing::ValuesIn(AllKernels()), NameOf);

}  // namespace
}  // namespace moed
