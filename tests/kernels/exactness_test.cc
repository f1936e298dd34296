// Norms, activations, the router and what a layer adds up: bit for bit those of "scalar".
#include "tests/kernels/exactness.h"

#include <algorithm>
#include <string>

#include "core/kernels/math.h"

namespace moed {
namespace {

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
