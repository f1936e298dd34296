// Keys, values and latents into their pages.
#pragma once

#include "core/kernels/cuda_operations.h"
#include "core/kernels/device/kv_numbers.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

constexpr unsigned kStoreThreads = 128;

// A lane's number of 32 of a row of `dims`, whose elements are `stride` apart from `slot` on (KvNumber); by the whole warp.
template <KvFormat kFormat>
__device__ inline void StoreKvNumber(Global<unsigned char> row, int dims, int64_t stride, int slot, int group, float number) {
  const int lane = threadIdx.x % 32, index = group * kKvScaleColumns + lane;
  const bool there = index < dims;
  const int64_t element = index * stride + slot;
  if constexpr (kFormat == KvFormat::kQ8) {
    const KvCode code = CodeOfLane(there ? number : 0.0f);
    if (there) Store(row, element, code.code);
    if (lane != 0) return;
    const Global<unsigned char> scale = row + dims * stride + 2 * (group * stride + slot);
    scale[0] = static_cast<unsigned char>(code.scale & 0xff);
    scale[1] = static_cast<unsigned char>(code.scale >> 8);
  } else if (there) {
    if constexpr (kFormat == KvFormat::kF32) Store(row, element, number);
    if constexpr (kFormat == KvFormat::kF16) Store(row, element, KvHalf(number));
  }
}

// Latents: a warp for each 32 numbers of a row.
template <KvFormat kFormat>
__global__ void StoreRows(cuda::StoreRowsOperation a) {
  JoinLaunches();
  const int groups = (a.dims + kKvScaleColumns - 1) / kKvScaleColumns;
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (warp >= static_cast<int64_t>(a.rows) * groups) return;
  const int group = static_cast<int>(warp % groups), index = group * kKvScaleColumns + static_cast<int>(threadIdx.x % 32);
  const float number = index < a.dims ? Global<const float>(a.numbers)[warp / groups * a.dims + index] : 0.0f;
  const cuda::KvPlace place = Global<const cuda::KvPlace>(a.places)[warp / groups];
  const Global<unsigned char> row = Global<unsigned char>(place.page) + a.first_byte + place.slot * a.row_bytes;
  StoreKvNumber<kFormat>(row, a.dims, 1, 0, group, number);
}

inline void LaunchStoreRows(DeviceStream& stream, const cuda::StoreRowsOperation& a) {
  const unsigned warps = static_cast<unsigned>(a.rows) * Blocks(static_cast<unsigned>(a.dims), kKvScaleColumns);
  if (warps == 0) return;
  const LaunchShape shape = {.grid = {Blocks(warps, kStoreThreads / 32)}, .block = {kStoreThreads}};
  switch (a.format) {
    case KvFormat::kF32:
      return Launch<StoreRows<KvFormat::kF32>>(stream, shape, a);
    case KvFormat::kF16:
      return Launch<StoreRows<KvFormat::kF16>>(stream, shape, a);
    case KvFormat::kQ8:
      return Launch<StoreRows<KvFormat::kQ8>>(stream, shape, a);
  }
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
