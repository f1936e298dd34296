// Rotary positions: a block of threads for each token. Its angles are computed once; heads are staged, since interleaved pairs
// leave in another order than they come.
#pragma once

#include "core/kernels/cuda/language.h"
#include "core/kernels/cuda_operations.h"
#include "core/kernels/kv_rows.h"
#include "core/kernels/math.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

constexpr int kRopeStagedFloats = 2 * kMostHeadDim;

__global__ void Rope(cuda::RopeOperation a) {
  JoinLaunches();
  const int half = a.rotary_dims / 2;
  const Shared<float> sines = SharedMemory<float>(), cosines = sines + half, staged = cosines + half;
  const Global<float> x = Global<float>(a.x) + static_cast<int64_t>(blockIdx.x) * a.stride;
  const auto position = static_cast<float>(Global<const int32_t>(a.positions)[blockIdx.x]);
  const int thread = threadIdx.x, threads = blockDim.x;
  for (int i = thread; i < half; i += threads) {
    const SinCos of = SineCosine(position * Global<const float>(a.inv_freq)[i]);
    sines[i] = of.sin;
    cosines[i] = of.cos;
  }
  const int together = kRopeStagedFloats / a.rotary_dims;
  for (int first = 0; first < a.heads; first += together) {
    const int heads = min(together, a.heads - first);
    const Global<float> parts = x + static_cast<int64_t>(first) * a.head_dim;
    for (int i = thread; i < heads * a.rotary_dims; i += threads) {
      staged[i] = parts[static_cast<int64_t>(i / a.rotary_dims) * a.head_dim + i % a.rotary_dims] * a.magnitude;
    }
    __syncthreads();
    for (int i = thread; i < heads * half; i += threads) {
      const int head = i / half, pair = i % half;
      const Shared<const float> own = staged + head * a.rotary_dims;
      const float one = own[a.interleaved ? 2 * pair : pair], other = own[a.interleaved ? 2 * pair + 1 : half + pair];
      const float sin = sines[pair], cos = cosines[pair];
      const Global<float> to = parts + static_cast<int64_t>(head) * a.head_dim + pair;
      to[0] = one * cos - other * sin;
      to[half] = other * cos + one * sin;
    }
    __syncthreads();
  }
}

inline void LaunchRope(DeviceStream& stream, const cuda::RopeOperation& operation) {
  if (operation.rows == 0 || operation.rotary_dims == 0) return;
  const auto shared = static_cast<unsigned>((operation.rotary_dims + kRopeStagedFloats) * sizeof(float));
  Launch<Rope>(stream, {.grid = {static_cast<unsigned>(operation.rows)}, .block = {128}, .shared_bytes = shared}, operation);
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
