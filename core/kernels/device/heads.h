// Queries, keys and values between their projection and attention: a warp for each head, in shared memory. Heads are normed and
// rotated as their transform says; queries go back to where they were, keys and values into their pages.
#pragma once

#include <cmath>

#include "core/kernels/cuda_operations.h"
#include "core/kernels/device/held_row.h"
#include "core/kernels/device/lane_sums.h"
#include "core/kernels/device/store_rows.h"
#include "core/kernels/math.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

constexpr int kHeadWarps = 4;  // of a block, all of one row, which share its angles

using HeldHead = HeldRow<const float, OfWarp>;

// x[i], i < n, becomes its RMS norm; by one warp. A lane's sum is that of partial sum lane mod 8.
__device__ inline void NormalizeHead(Shared<float> x, int n, const HeldHead& weight, float eps) {
  constexpr int kAhead = 8;
  float sum = 0;
  int i = static_cast<int>(threadIdx.x) % kPartialSums;
  for (; i + (kAhead - 1) * kPartialSums < n; i += kAhead * kPartialSums) {
    float ahead[kAhead];
    MOED_UNROLL
    for (int step = 0; step < kAhead; ++step) ahead[step] = x[i + step * kPartialSums];
    MOED_UNROLL
    for (int step = 0; step < kAhead; ++step) sum = fmaf(ahead[step], ahead[step], sum);
  }
  for (; i < n; i += kPartialSums) sum = fmaf(x[i], x[i], sum);
  for (int lanes = 4; lanes > 0; lanes /= 2) sum = sum + __shfl_xor_sync(kEveryLane, sum, lanes);
  const float scale = 1.0f / sqrtf(sum / static_cast<float>(n) + eps);
  __syncwarp();
  ForColumns<OfWarp>(n, [&](OwnColumn at) { x[at.index] = x[at.index] * scale * weight(at); });
  __syncwarp();
}

// The pairs of x rotated to y, and what is no pair as it is.
__device__ inline void RotateHead(Shared<const float> x, const cuda::HeadsOperation& a, Shared<const float> sines,
                                  Shared<float> y) {
  const int half = a.rotary_dims / 2, lane = threadIdx.x % 32;
  for (int pair = lane; pair < half; pair += 32) {
    const float one = x[a.interleaved ? 2 * pair : pair] * a.magnitude;
    const float other = x[a.interleaved ? 2 * pair + 1 : half + pair] * a.magnitude;
    const float sin = sines[pair], cos = sines[half + pair];
    y[pair] = one * cos - other * sin;
    y[half + pair] = other * cos + one * sin;
  }
  for (int i = a.rotary_dims + lane; i < a.dims; i += 32) y[i] = x[i];
  __syncwarp();
}

// Of the row's position: sines, behind them cosines; by the whole block.
__device__ inline void ComputeAngles(const cuda::HeadsOperation& a, int position, Shared<float> sines) {
  const int half = a.rotary_dims / 2;
  for (int i = threadIdx.x; i < half; i += blockDim.x) {
    const SinCos of = SineCosine(static_cast<float>(position) * Global<const float>(a.inv_freq)[i]);
    sines[i] = of.sin;
    sines[half + i] = of.cos;
  }
}

// Head `head` of the keys, or of the values, of a page.
template <KvFormat kFormat>
__device__ inline void StoreHead(Shared<const float> x, const cuda::HeadsOperation& a, const cuda::KvPlace& place, int head,
                                 bool keys) {
  const Global<unsigned char> page = Global<unsigned char>(place.page) + head * a.head_bytes;
  const Global<unsigned char> row = keys ? page : page + a.kv_heads * a.head_bytes + place.slot * a.row_bytes;
  const int64_t stride = keys ? a.slots : 1;
  for (int group = 0; group * kKvScaleColumns < a.dims; ++group) {
    const int index = group * kKvScaleColumns + static_cast<int>(threadIdx.x % 32);
    StoreKvNumber<kFormat>(row, a.dims, stride, keys ? place.slot : 0, group,
                           index < a.dims ? static_cast<float>(x[index]) : 0.0f);
  }
}

template <KvFormat kFormat>
__global__ void Heads(cuda::HeadsOperation a) {
  JoinLaunches();
  const int transformed = a.heads + a.kv_heads, all = transformed + a.kv_heads;
  const int pieces = (all + kHeadWarps - 1) / kHeadWarps, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t row = blockIdx.x / pieces;
  const int first = static_cast<int>(blockIdx.x) % pieces * kHeadWarps, head = first + warp;
  const bool query = head < a.heads, keys = !query && head < transformed, there = head < all;
  const int of_kind = query ? head : keys ? head - a.heads : head - transformed;
  const int64_t begin = (row * (query ? a.heads : a.kv_heads) + of_kind) * a.dims;
  const HeldHead numbers(Global<const float>(query ? a.query : keys ? a.keys : a.values) + begin, there ? a.dims : 0);
  const Global<const float> weight(query ? a.query_norm : keys ? a.key_norm : nullptr);
  const HeldHead factors(weight, there ? a.dims : 0);
  const cuda::KvPlace place = Global<const cuda::KvPlace>(a.places)[row];
  const Shared<float> sines = SharedMemory<float>();
  Shared<float> x = sines + a.rotary_dims + 2 * warp * a.dims;
  if (first < transformed) ComputeAngles(a, place.position, sines);
  if (there) ForColumns<OfWarp>(a.dims, [&](OwnColumn at) { x[at.index] = numbers(at); });
  __syncthreads();
  if (!there) return;

  if (query || keys) {
    if (weight != nullptr && !a.norm_last) NormalizeHead(x, a.dims, factors, a.eps);
    if (a.rotary_dims > 0) {
      RotateHead(x, a, sines, x + a.dims);
      x = x + a.dims;
    }
    if (weight != nullptr && a.norm_last) NormalizeHead(x, a.dims, factors, a.eps);
  }
  if (!query) return StoreHead<kFormat>(x, a, place, of_kind, keys);
  const Global<float> to = Global<float>(a.query) + begin;
  for (int i = lane; i < a.dims; i += 32) to[i] = static_cast<float>(x[i]);
}

inline void LaunchHeads(DeviceStream& stream, const cuda::HeadsOperation& a) {
  const auto pieces = Blocks(static_cast<unsigned>(a.heads + 2 * a.kv_heads), kHeadWarps);
  if (a.rows == 0 || pieces == 0) return;
  const LaunchShape shape = {.grid = {static_cast<unsigned>(a.rows) * pieces},
                             .block = {32 * kHeadWarps},
                             .shared_bytes = static_cast<unsigned>((a.rotary_dims + 2 * kHeadWarps * a.dims) * sizeof(float))};
  switch (a.format) {
    case KvFormat::kF32:
      return Launch<Heads<KvFormat::kF32>>(stream, shape, a);
    case KvFormat::kF16:
      return Launch<Heads<KvFormat::kF16>>(stream, shape, a);
    case KvFormat::kQ8:
      return Launch<Heads<KvFormat::kQ8>>(stream, shape, a);
  }
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
