// What experts made of each row, weighted and added up: a block of threads for 64 columns of a row.
#pragma once

#include "core/base/device_code.h"
#include "core/kernels/cuda/language.h"
#include "core/kernels/cuda_operations.h"
#include "core/kernels/math.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

constexpr unsigned kCombineThreads = 64;
constexpr int kOutputsAhead = 8;  // loaded before the first is added

// Of each slot of the row: where its output is, or that there is none, and what it counts; by the whole block.
__device__ inline void StageSlots(const cuda::CombineOperation& a, int64_t row, Shared<int32_t> places, Shared<float> weights) {
  for (int slot = threadIdx.x; slot < a.top_k; slot += blockDim.x) {
    const int32_t place = Global<const int32_t>(a.places)[row * a.top_k + slot];
    const ExpertChoice choice = Global<const ExpertChoice>(a.choices)[row * a.top_k + slot];
    float weight = choice.probability * a.scale;
    if (place >= 0 && a.expert_scales != nullptr) weight *= Global<const float>(a.expert_scales)[choice.expert];
    places[slot] = place;
    weights[slot] = weight;
  }
}

__global__ void Combine(cuda::CombineOperation a) {
  JoinLaunches();
  const unsigned pieces = Blocks(static_cast<unsigned>(a.cols), kCombineThreads);
  const int64_t row = blockIdx.x / pieces;
  const int column = static_cast<int>(blockIdx.x % pieces * kCombineThreads + threadIdx.x);
  const bool there = column < a.cols, shares = there && a.shared != nullptr;
  const int64_t i = row * a.cols + column;
  const Global<float> x(a.x);
  float sum = there && a.adds ? static_cast<float>(x[i]) : 0.0f;
  const float shared = shares ? Global<const float>(a.shared)[i] : 0.0f;
  const float gate = shares && a.shared_gate != nullptr ? Global<const float>(a.shared_gate)[row] : 0.0f;
  const Shared<int32_t> places = SharedMemory<int32_t>();
  const Shared<float> weights = SharedMemory<float>(a.top_k * sizeof(int32_t));
  StageSlots(a, row, places, weights);
  __syncthreads();
  if (!there) return;
  for (int first = 0; first < a.top_k; first += kOutputsAhead) {
    float outputs[kOutputsAhead], weight[kOutputsAhead];
    bool present[kOutputsAhead];
    MOED_UNROLL
    for (int k = 0; k < kOutputsAhead; ++k) {
      const int64_t place = first + k < a.top_k ? static_cast<int32_t>(places[first + k]) : -1;
      present[k] = place >= 0;
      if (!present[k]) continue;
      outputs[k] = Global<const float>(a.outputs)[place * a.cols + column];
      weight[k] = weights[first + k];
    }
    MOED_UNROLL
    for (int k = 0; k < kOutputsAhead; ++k) {
      if (present[k]) sum = fmaf(weight[k], outputs[k], sum);
    }
  }
  if (shares) sum = fmaf((a.shared_gate == nullptr ? 1.0f : Sigmoid(gate)) * a.shared_scale, shared, sum);
  x[i] = sum;
}

inline void LaunchCombine(DeviceStream& stream, const cuda::CombineOperation& a) {
  if (a.rows == 0 || a.cols == 0) return;
  const auto pieces = Blocks(static_cast<unsigned>(a.cols), kCombineThreads);
  Launch<Combine>(stream,
                  {.grid = {static_cast<unsigned>(a.rows) * pieces},
                   .block = {kCombineThreads},
                   .shared_bytes = static_cast<unsigned>(a.top_k * (sizeof(int32_t) + sizeof(float)))},
                  a);
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
