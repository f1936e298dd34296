// Activations in the forms that products read: a warp for each 32 columns.
#pragma once

#include "core/kernels/constants.h"
#include "core/kernels/cuda_operations.h"
#include "core/kernels/device/activated.h"
#include "core/kernels/device/lane_sums.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

// Magnitudes compare as integers, which puts NaN above infinity; a block with either has a NaN scale, so that it shows.
__device__ inline void QuantizeColumn(float x, Global<int8_t> code, Global<float> scale, Global<int32_t> sum) {
  const unsigned bits = __reduce_max_sync(kEveryLane, __float_as_uint(x) & 0x7fffffffu);
  const float largest = __uint_as_float(bits);
  const bool finite = bits < 0x7f800000u;
  const bool zero = !finite || largest < kSmallestActivation;
  const float inverse = zero ? 0.0f : 127.0f / largest;
  const auto own = zero ? int8_t{0} : static_cast<int8_t>((x * inverse + kRoundFloat) - kRoundFloat);
  const int total = __reduce_add_sync(kEveryLane, static_cast<int>(own));
  const int lane = threadIdx.x % 32;
  code[lane] = own;
  if (lane != 0) return;
  *scale = !finite ? __uint_as_float(0x7fc00000u) : zero ? 0.0f : largest / 127.0f;
  *sum = total;
}

// A lane's column of a block of 32, which is number `block` of all rows', in the forms that are wanted.
__device__ inline void PutPrepared(const cuda::PreparedRows& to, int64_t block, float x) {
  if (to.values != nullptr) Global<float>(to.values)[block * kBlockColumns + threadIdx.x % 32] = x;
  if (to.codes == nullptr) return;
  QuantizeColumn(x, Global<int8_t>(to.codes) + block * kBlockColumns, Global<float>(to.scales) + block,
                 Global<int32_t>(to.sums) + block);
}

__device__ inline float Column(const cuda::PrepareOperation& a, int64_t token, int column) {
  return Global<const float>(a.x)[token * a.stride + column];
}
__device__ inline float Column(const cuda::ActivateAndPrepareOperation& a, int64_t token, int column) {
  return Activated(a.activation, Global<const float>(a.gate), Global<const float>(a.up), token * a.cols + column);
}

template <class Operation>
__global__ void Prepare(Operation a) {
  JoinLaunches();
  const unsigned blocks = Blocks(static_cast<unsigned>(a.cols), kBlockColumns);
  const unsigned warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (warp >= static_cast<unsigned>(a.tokens) * blocks) return;
  const int column = static_cast<int>(warp % blocks * kBlockColumns + threadIdx.x % 32);
  PutPrepared(a.prepared, warp, column < a.cols ? Column(a, warp / blocks, column) : 0.0f);
}

template <class Operation>
void LaunchPrepare(DeviceStream& stream, const Operation& operation) {
  constexpr unsigned kThreads = 128;
  const auto warps = static_cast<unsigned>(operation.tokens) * Blocks(static_cast<unsigned>(operation.cols), kBlockColumns);
  if (warps == 0) return;
  Launch<Prepare<Operation>>(stream, {.grid = {Blocks(warps, kThreads / 32)}, .block = {kThreads}}, operation);
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
