// The gradient of a weight: errors times a feature, of all experts of a layer.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "core/base/check.h"

namespace moed {

// In a fixed order of additions that leaves compilers sixteen sums to compute at once.
inline float DotProduct(std::span<const float> a, std::span<const float> b) {
  MOED_CHECK(a.size() == b.size());
  constexpr size_t kSums = 16;
  std::array<float, kSums> sums{};
  const float* x = a.data();
  const float* y = b.data();
  size_t i = 0;
  for (; i + kSums <= a.size(); i += kSums) {
    for (size_t lane = 0; lane < kSums; ++lane) sums[lane] += x[i + lane] * y[i + lane];
  }
  for (; i < a.size(); ++i) sums[i % kSums] += x[i] * y[i];
  float sum = 0;
  for (const float part : sums) sum += part;
  return sum;
}

}  // namespace moed
