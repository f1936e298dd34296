// Norms and softmax: a block of threads for each row.
#pragma once

#include <cmath>

#include "core/kernels/cuda_operations.h"
#include "core/kernels/device/lane_sums.h"
#include "core/kernels/device/prepare.h"
#include "core/kernels/math.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

constexpr unsigned kRowThreads = 128;

// y[i] = normed(i), and y prepared where it is wanted, by the whole block.
template <class Normed>
__device__ inline void PutNormed(const cuda::NormOperation& a, const Normed& normed) {
  const bool prepares = a.prepared.values != nullptr || a.prepared.codes != nullptr;
  const int blocks = (a.cols + kBlockColumns - 1) / kBlockColumns;
  const Global<float> y = Global<float>(a.y) + static_cast<int64_t>(blockIdx.x) * a.cols;
  for (int i = threadIdx.x; i < (prepares ? blocks * kBlockColumns : a.cols); i += blockDim.x) {
    const float value = i < a.cols ? normed(i) : 0.0f;
    if (i < a.cols) y[i] = value;
    if (prepares) PutPrepared(a.prepared, static_cast<int64_t>(blockIdx.x) * blocks + i / kBlockColumns, value);
  }
}

__global__ void RmsNorm(cuda::NormOperation a) {
  const Global<const float> x = Global<const float>(a.x) + static_cast<int64_t>(blockIdx.x) * a.cols, weight(a.weight);
  const float squares = LaneSumOfRow(x, a.cols, [](float sum, float value) { return fmaf(value, value, sum); });
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(a.cols) + a.eps);
  PutNormed(a, [&](int i) -> float { return weight == nullptr ? x[i] * scale : x[i] * scale * weight[i]; });
}

__global__ void LayerNorm(cuda::NormOperation a) {
  const Global<const float> x = Global<const float>(a.x) + static_cast<int64_t>(blockIdx.x) * a.cols;
  const Global<const float> weight(a.weight), bias(a.bias);
  const auto count = static_cast<float>(a.cols);
  const float mean = LaneSumOfRow(x, a.cols, [](float sum, float value) { return sum + value; }) / count;
  const float squares = LaneSumOfRow(x, a.cols, [=](float sum, float value) { return sum + (value - mean) * (value - mean); });
  const float scale = 1.0f / sqrtf(squares / count + a.eps);
  PutNormed(a, [&](int i) -> float { return (x[i] - mean) * scale * weight[i] + bias[i]; });
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
