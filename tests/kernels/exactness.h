// Every backend gives the bits of "scalar": each operation, every length below two vectors and awkward ones above, any alignment,
// any number of threads.
#pragma once

#include <algorithm>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "tests/kernels/fixtures.h"
#include "tests/kernels/tested_backends.h"

namespace moed {

inline constexpr int kLengths[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,  13,  14,  15,  16,
                                   17, 23, 24, 31, 32, 33, 63, 64, 65, 96, 97, 100, 127, 250, 1000};

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
inline std::vector<float> Awkward(size_t count, uint32_t seed) {
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

}  // namespace moed
