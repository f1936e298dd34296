// Sums and maxima of a block of threads over a row, in the order of the scalar definition.
#pragma once

#include "core/kernels/cuda/language.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

constexpr unsigned kEveryLane = 0xffffffffu;
constexpr int kPartialSums = 8;
constexpr int kStagedFloats = 1024;
constexpr unsigned kLaneSumBytes = kStagedFloats * sizeof(float);  // of shared memory, from its begin on

__device__ inline float SumOfPartials(Shared<const float> s) {
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

// Element i of n into partial sum i mod 8 by accumulate(sum, element(i)), i ascending; every thread gets the sum. Elements are
// staged, so that eight threads' chains of additions do not wait for memory. What was in shared memory and in the elements'
// before may be in use; what is in it afterwards is so until the next barrier.
template <class Element, class Accumulate>
__device__ inline float LaneSum(int n, const Element& element, const Accumulate& accumulate) {
  const Shared<float> staged = SharedMemory<float>();
  const int thread = threadIdx.x;
  float partial = 0;
  for (int first = 0; first < n; first += kStagedFloats) {
    const int count = min(kStagedFloats, n - first);
    __syncthreads();
    for (int i = thread; i < count; i += blockDim.x) staged[i] = element(first + i);
    __syncthreads();
    if (thread >= kPartialSums) continue;
    for (int i = thread; i < count; i += kPartialSums) partial = accumulate(partial, staged[i]);
  }
  if (thread < kPartialSums) staged[thread] = partial;  // where it alone has read
  __syncthreads();
  return SumOfPartials(staged);
}
template <class Accumulate>
__device__ inline float LaneSumOfRow(Global<const float> x, int n, const Accumulate& accumulate) {
  return LaneSum(
      n, [&](int i) -> float { return x[i]; }, accumulate);
}

// What a > b keeps, which is never a NaN but where all begin with one.
__device__ inline float LargestOfWarp(float largest) {
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const float other = __shfl_xor_sync(kEveryLane, largest, lanes);
    largest = other > largest ? other : largest;
  }
  return largest;
}

// Of x[i], i < n; minus infinity where there is none. Nothing in shared memory is in use before; afterwards it is until the next
// barrier.
__device__ inline float LargestOfRow(Global<const float> x, int n) {
  const Shared<float> of_warps = SharedMemory<float>();
  float largest = -INFINITY;
  for (int i = threadIdx.x; i < n; i += blockDim.x) largest = x[i] > largest ? x[i] : largest;
  largest = LargestOfWarp(largest);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = largest;
  __syncthreads();
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) {
    const float other = of_warps[warp];
    largest = other > largest ? other : largest;
  }
  return largest;
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
