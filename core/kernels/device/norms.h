// Norms and softmax: a block of threads for each row, which they hold in registers.
#pragma once

#include <algorithm>
#include <cmath>

#include "core/kernels/cuda_operations.h"
#include "core/kernels/device/lane_sums.h"
#include "core/kernels/device/prepare.h"
#include "core/kernels/math.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

constexpr int kMostRowThreads = 1024;
constexpr int kFewerRowThreads = 512;  // of more registers
constexpr int kFewRows = 32;

// y[i] = normed(i), and y prepared where it is wanted, by the whole block. What is read for held columns is in flight together.
template <class Normed>
__device__ inline void PutNormed(const cuda::NormOperation& a, const Normed& normed) {
  const bool prepares = a.prepared.values != nullptr || a.prepared.codes != nullptr;
  const int blocks = (a.cols + kBlockColumns - 1) / kBlockColumns, n = prepares ? blocks * kBlockColumns : a.cols;
  const Global<float> y = Global<float>(a.y) + static_cast<int64_t>(blockIdx.x) * a.cols;
  const auto put = [&](int i, float value) {
    if (i < a.cols) y[i] = value;
    if (prepares) PutPrepared(a.prepared, static_cast<int64_t>(blockIdx.x) * blocks + i / kBlockColumns, value);
  };
  float values[kHeldColumns] = {};
  ForHeldColumns(a.cols, [&](OwnColumn column) { values[column.held] = normed(column); });
  ForColumns(n, [&](OwnColumn column) {
    const int i = column.index;
    put(i, column.held < kHeldColumns ? values[column.held] : i < a.cols ? normed(column) : 0.0f);
  });
}

__global__ void __launch_bounds__(kMostRowThreads) RmsNorm(cuda::NormOperation a) {
  JoinLaunches();
  const HeldRow<const float> x(Global<const float>(a.x) + static_cast<int64_t>(blockIdx.x) * a.cols, a.cols);
  const HeldRow<const float> weight(Global<const float>(a.weight), a.cols, /*of_none=*/1);
  const float squares = SumOfColumns(a.cols, x, [](float sum, float value) { return fmaf(value, value, sum); });
  const float scale = 1.0f / sqrtf(squares / static_cast<float>(a.cols) + a.eps);
  PutNormed(a, [&](OwnColumn column) { return x(column) * scale * weight(column); });
}

__global__ void __launch_bounds__(kFewerRowThreads, 1) LayerNorm(cuda::NormOperation a) {
  JoinLaunches();
  const HeldRow<const float> x(Global<const float>(a.x) + static_cast<int64_t>(blockIdx.x) * a.cols, a.cols);
  const Global<const float> weight(a.weight), bias(a.bias);
  const auto count = static_cast<float>(a.cols);
  const auto add = [](float sum, float value) { return sum + value; };
  const float mean = SumOfColumns(a.cols, x, add) / count;
  const auto square = [&](OwnColumn column) { return (x(column) - mean) * (x(column) - mean); };
  const float scale = 1.0f / sqrtf(SumOfColumns(a.cols, square, add) / count + a.eps);
  PutNormed(a, [&](OwnColumn column) { return (x(column) - mean) * scale * weight[column.index] + bias[column.index]; });
}

// put(i, probability), by the whole block. What lies behind the held columns is written on the way.
template <class Put>
__device__ inline void SoftmaxOfRow(HeldRow<float>& x, int n, const Put& put) {
  const float largest = LargestOfColumns(n, x);
  ForColumns(n, [&](OwnColumn column) { x.Put(column, Exp(x(column) - largest)); });
  const float sum = SumOfColumns(n, x, [](float total, float value) { return total + value; });
  ForColumns(n, [&](OwnColumn column) { put(column.index, x(column) / sum); });
}

__global__ void __launch_bounds__(kFewerRowThreads, 1) Softmax(cuda::SoftmaxOperation a) {
  JoinLaunches();
  const Global<float> row = Global<float>(a.x) + static_cast<int64_t>(blockIdx.x) * a.cols;
  HeldRow<float> x(row, a.cols);
  SoftmaxOfRow(x, a.cols, [&](int i, float probability) { row[i] = probability; });
}

// `of_thread`: columns that a thread takes, where there are not more than `most` take.
constexpr int ThreadsOfRow(int cols, int of_thread, int most) {
  const int warps = (cols + 32 * of_thread - 1) / (32 * of_thread);
  return std::min(std::max(warps, 1) * 32, most);
}
// Of shared memory, for sums and maxima.
constexpr int RowFloats(int cols, int threads) { return std::max(std::min(cols, kHeldColumns * threads), kMostRowThreads / 32); }

// Many rows keep the device busy with few threads each.
template <auto kKernel, int kMostThreads = kMostRowThreads, class Operation>
void LaunchRows(DeviceStream& stream, const Operation& operation) {
  if (operation.rows == 0) return;
  const int threads = ThreadsOfRow(operation.cols, operation.rows <= kFewRows ? 1 : kHeldColumns, kMostThreads);
  Launch<kKernel>(stream,
                  {.grid = {static_cast<unsigned>(operation.rows)},
                   .block = {static_cast<unsigned>(threads)},
                   .shared_bytes = static_cast<unsigned>(RowFloats(operation.cols, threads) * sizeof(float))},
                  operation);
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
