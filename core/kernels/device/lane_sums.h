// Sums and maxima of a block of threads over a row, in the order of the scalar definition.
#pragma once

#include "core/base/device_code.h"
#include "core/kernels/cuda/language.h"
#include "core/kernels/device/held_row.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

constexpr unsigned kEveryLane = 0xffffffffu;
constexpr int kPartialSums = 8;
constexpr int kStepsAhead = 8;  // of a chain of operations, whose numbers are read before the first of them
constexpr int kStagedFloats = 1024;
constexpr unsigned kLaneSumBytes = kStagedFloats * sizeof(float);  // of shared memory, from its begin on

__device__ inline float SumOfPartials(Shared<const float> s) {
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

// `sum`, the partial sum `lane` of 8, with elements lane, lane + 8, ... of the n at x added to it. kAhead of them are read before
// the first of these is added.
template <class Element, int kAhead, class Accumulate>
__device__ inline float AddToPartial(float sum, Shared<const Element> x, int n, int lane, const Accumulate& accumulate) {
  const auto read = [&](int step) { return Load<Element>(x, step * kPartialSums + lane); };
  const int steps = (n - lane + kPartialSums - 1) / kPartialSums;
  Element ahead[kAhead] = {};
  MOED_UNROLL
  for (int k = 0; k < kAhead; ++k) {
    if (k < steps) ahead[k] = read(k);
  }
  int step = 0;
  for (; step + 2 * kAhead <= steps; step += kAhead) {
    MOED_UNROLL
    for (int k = 0; k < kAhead; ++k) sum = accumulate(sum, ahead[k]), ahead[k] = read(step + kAhead + k);
  }
  for (; step < steps; step += kAhead) {
    MOED_UNROLL
    for (int k = 0; k < kAhead; ++k) {
      if (step + k < steps) sum = accumulate(sum, ahead[k]);
      if (step + kAhead + k < steps) ahead[k] = read(step + kAhead + k);
    }
  }
  return sum;
}

// Element i of n into partial sum i mod 8 by accumulate(sum, element i), i ascending; every thread gets the sum. Elements are
// staged, up to `most` at once (a multiple of 8), so that eight threads' chains of additions do not wait for memory: stage(to,
// first, count), by the whole block. What was in shared memory before may be in use; what is in it afterwards is so until the
// next barrier.
template <class Stage, class Accumulate>
__device__ inline float SumOfStaged(int n, int most, const Stage& stage, const Accumulate& accumulate) {
  const Shared<float> staged = SharedMemory<float>();
  const int thread = threadIdx.x;
  float partial = 0;
  for (int first = 0; first < n; first += most) {
    const int count = min(most, n - first);
    __syncthreads();
    stage(staged, first, count);
    __syncthreads();
    if (thread < kPartialSums) partial = AddToPartial<float, kStepsAhead>(partial, staged, count, thread, accumulate);
  }
  if (thread < kPartialSums) staged[thread] = partial;  // where it alone has read
  __syncthreads();
  return SumOfPartials(staged);
}
// Of element(column), of which the held ones are not read again; with as much shared memory as is held.
template <class Element, class Accumulate>
__device__ inline float SumOfColumns(int n, const Element& element, const Accumulate& accumulate) {
  const int threads = blockDim.x;
  const auto stage = [&](Shared<float> to, int first, int count) {
    if (first == 0) return ForHeldColumns(count, [&](OwnColumn column) { to[column.index] = element(column); });
    for (int i = threadIdx.x; i < count; i += threads) to[i] = element(OwnColumn{first + i, kHeldColumns});
  };
  return SumOfStaged(n, kHeldColumns * threads, stage, accumulate);
}
// Of element(i), with kLaneSumBytes of shared memory.
template <class Element, class Accumulate>
__device__ inline float LaneSum(int n, const Element& element, const Accumulate& accumulate) {
  const auto stage = [&](Shared<float> to, int first, int count) {
    const int threads = blockDim.x;
    for (int begin = threadIdx.x; begin < count; begin += kHeldColumns * threads) {
      float own[kHeldColumns];
      MOED_UNROLL
      for (int k = 0; k < kHeldColumns; ++k) {
        if (begin + k * threads < count) own[k] = element(first + begin + k * threads);
      }
      MOED_UNROLL
      for (int k = 0; k < kHeldColumns; ++k) {
        if (begin + k * threads < count) to[begin + k * threads] = own[k];
      }
    }
  };
  return SumOfStaged(n, kStagedFloats, stage, accumulate);
}

// Numbers as integers that compare as they do: a < b is OrderOf(a) < OrderOf(b), also where one is infinite; -0 is below 0. None
// has 0.
__device__ inline unsigned OrderOf(float x) {
  const unsigned bits = __float_as_uint(x);
  return bits >> 31 != 0 ? ~bits : bits | 1u << 31;
}
__device__ inline float NumberOf(unsigned order) { return __uint_as_float(order >> 31 != 0 ? order & ~(1u << 31) : ~order); }

// Of numbers.
__device__ inline float LargestOfWarp(float largest) { return NumberOf(__reduce_max_sync(kEveryLane, OrderOf(largest))); }

// Of element(column) for the columns of a row of n, of which NaN counts nothing; minus infinity where there is none. Nothing in
// shared memory is in use before; afterwards it is until the next barrier.
template <class Element>
__device__ inline float LargestOfColumns(int n, const Element& element) {
  const Shared<float> of_warps = SharedMemory<float>();
  const unsigned lane = threadIdx.x % 32;
  float largest = -INFINITY;
  ForColumns(n, [&](OwnColumn column) {
    const float x = element(column);
    largest = x > largest ? x : largest;
  });
  largest = LargestOfWarp(largest);
  if (lane == 0) of_warps[threadIdx.x / 32] = largest;
  __syncthreads();
  return LargestOfWarp(lane < blockDim.x / 32 ? static_cast<float>(of_warps[lane]) : -INFINITY);
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
