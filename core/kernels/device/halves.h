// Rows as 16-bit numbers, for products that a library makes: a warp for each row, which it goes through twice, for the largest
// number and for all.
#pragma once

#include "core/kernels/cuda_operations.h"
#include "core/kernels/device/lane_sums.h"
#include "core/kernels/device/weight_numbers.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

// The power of two, from the bits of the largest magnitude. Of rows that are nearly or all zeros it is as large as one may be
// whose inverse is a normal number; of rows with an infinity or a NaN these stay what they are.
struct HalfScale {
  float scale;
  float inverse;
};
__device__ inline HalfScale ScaleOfHalves(unsigned largest) {
  for (int lanes = 16; lanes > 0; lanes /= 2) largest = max(largest, __shfl_xor_sync(kEveryLane, largest, lanes));
  constexpr int kBias = 127, kLargestExponent = 14, kMostExponent = 253;
  const int exponent = 2 * kBias + kLargestExponent - static_cast<int>(largest >> 23);
  const unsigned biased = exponent < 1 ? 1 : exponent > kMostExponent ? kMostExponent : exponent;
  return {__uint_as_float(biased << 23), __uint_as_float((2 * kBias - biased) << 23)};
}

// `numbers(body)` calls body(column, number) for the lane's columns, in the same order each time.
template <class Row>
__device__ inline void HalveRow(const cuda::HalfRows& to, int64_t row, int columns, const Row& numbers) {
  unsigned largest = 0;
  numbers([&](int, float number) { largest = max(largest, __float_as_uint(number) & 0x7fffffffu); });
  const HalfScale scale = ScaleOfHalves(largest);
  const Global<uint16_t> halves = Global<uint16_t>(to.numbers) + row * columns;
  numbers([&](int column, float number) {
    if (column < columns) halves[column] = FloatToFloat16(number * scale.scale);
  });
  if (threadIdx.x % 32 == 0) Global<float>(to.inverses)[row] = scale.inverse;
}

// A block of threads for each panel.
template <FormatId kFormat>
__global__ void HalveWeights(cuda::HalveWeightsOperation a) {
  JoinLaunches();
  using Layout = PanelLayout<kFormat>;
  const int row = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t of_all = static_cast<int64_t>(blockIdx.x) * kPanelRows + row;
  if (of_all >= a.rows) return;
  const int blocks = (a.cols + Layout::kColumns - 1) / Layout::kColumns;
  const Global<const unsigned char> panel =
      Global<const unsigned char>(a.matrix) + static_cast<int64_t>(blockIdx.x) * blocks * Layout::kBytes;
  const int columns = (a.cols + kBlockColumns - 1) / kBlockColumns * kBlockColumns;
  HalveRow(a.to, of_all, columns, [&](const auto& body) {
    for (int b = 0; b < blocks; ++b) {
      ForBlock<kFormat>(BytesAt(panel + static_cast<int64_t>(b) * Layout::kBytes), row, lane,
                        [&](int column, float weight) { body(b * Layout::kColumns + column, weight); });
    }
  });
}

__global__ void HalveInput(cuda::HalveInputOperation a) {
  JoinLaunches();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (row >= a.rows) return;
  const int lane = threadIdx.x % 32, blocks = (a.cols + kBlockColumns - 1) / kBlockColumns;
  HalveRow(a.to, row, blocks * kBlockColumns, [&](const auto& body) {
    for (int b = 0; b < blocks; ++b) {
      const int64_t block = row * blocks + b, number = block * kBlockColumns + lane;
      if (a.values != nullptr) {
        body(b * kBlockColumns + lane, Global<const float>(a.values)[number]);
      } else {
        const float code = Global<const int8_t>(a.codes)[number];
        body(b * kBlockColumns + lane, code * Global<const float>(a.scales)[block]);
      }
    }
  });
}

template <FormatId kFormat>
struct HalveWeightsOf {
  static void kLaunch(DeviceStream& stream, const cuda::HalveWeightsOperation& a) {
    const unsigned panels = Blocks(static_cast<unsigned>(a.rows), kPanelRows);
    Launch<HalveWeights<kFormat>>(stream, {.grid = {panels}, .block = {32 * kPanelRows}}, a);
  }
};

inline void LaunchHalveWeights(DeviceStream& stream, const cuda::HalveWeightsOperation& a) {
  if (a.rows == 0 || a.cols == 0) return;
  kFormatTable<cuda::Launcher<cuda::HalveWeightsOperation>, HalveWeightsOf>.of[static_cast<int>(a.format)](stream, a);
}

inline void LaunchHalveInput(DeviceStream& stream, const cuda::HalveInputOperation& a) {
  constexpr unsigned kThreads = 128;
  if (a.rows == 0 || a.cols == 0) return;
  Launch<HalveInput>(stream, {.grid = {Blocks(static_cast<unsigned>(a.rows), kThreads / 32)}, .block = {kThreads}}, a);
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
