// Norms and softmax: a block of threads for each row.
#pragma once

#include <cmath>

#include "core/kernels/cuda_operations.h"
#include "core/kernels/device/lane_sums.h"
#include "core/kernels/math.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

constexpr unsigned kRowThreads = 128;

__global__ void RmsNorm(cuda::RmsNormOperation a) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * a.cols;
  const Global<const float> x = Global<const float>(a.x) + row, weight(a.weight);
  const Global<float> y = Global<float>(a.y) + row;
  const float squares = LaneSumOfRow(x, a.cols, [](float sum, float value) { return fmaf(value, value, sum); });
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(a.cols) + a.eps);
  for (int i = threadIdx.x; i < a.cols; i += blockDim.x) y[i] = weight == nullptr ? x[i] * scale : x[i] * scale * weight[i];
}

__global__ void LayerNorm(cuda::LayerNormOperation a) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * a.cols;
  const Global<const float> x = Global<const float>(a.x) + row, weight(a.weight), bias(a.bias);
  const Global<float> y = Global<float>(a.y) + row;
  const auto count = static_cast<float>(a.cols);
  const float mean = LaneSumOfRow(x, a.cols, [](float sum, float value) { return sum + value; }) / count;
  const float squares = LaneSumOfRow(x, a.cols, [=](float sum, float value) { return sum + (value - mean) * (value - mean); });
  const float scale = 1.0f / sqrtf(squares / count + a.eps);
  for (int i = threadIdx.x; i < a.cols; i += blockDim.x) y[i] = (x[i] - mean) * scale * weight[i] + bias[i];
}

// In place, by the whole block.
__device__ inline void SoftmaxOfRow(Global<float> x, int n) {
  const float largest = LargestOfRow(x, n);
  for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = Exp(x[i] - largest);
  const float sum = LaneSumOfRow(x, n, [](float total, float value) { return total + value; });
  for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = x[i] / sum;
  __syncthreads();
}

__global__ void Softmax(cuda::SoftmaxOperation a) {
  SoftmaxOfRow(Global<float>(a.x) + static_cast<int64_t>(blockIdx.x) * a.cols, a.cols);
}

template <auto kKernel, class Operation>
void LaunchRows(DeviceStream& stream, const Operation& operation) {
  if (operation.rows == 0) return;
  const auto rows = static_cast<unsigned>(operation.rows);
  Launch<kKernel>(stream, {.grid = {rows}, .block = {kRowThreads}, .shared_bytes = kLaneSumBytes}, operation);
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
