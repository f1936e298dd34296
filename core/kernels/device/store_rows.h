// Keys, values and latents into their pages: a warp for each 32 numbers of a row.
#pragma once

#include "core/kernels/cuda_operations.h"
#include "core/kernels/device/kv_numbers.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

constexpr unsigned kStoreThreads = 128;

template <KvFormat kFormat>
__global__ void StoreRows(cuda::StoreRowsOperation a) {
  const int groups = (a.dims + kKvScaleColumns - 1) / kKvScaleColumns;
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
  if (warp >= static_cast<int64_t>(a.rows) * a.heads * groups) return;
  const int lane = threadIdx.x % 32, group = static_cast<int>(warp % groups), head = static_cast<int>(warp / groups % a.heads);
  const int index = group * kKvScaleColumns + lane;
  const bool there = index < a.dims;
  const float number = there ? Global<const float>(a.numbers)[warp / groups * a.dims + index] : 0.0f;

  const cuda::KvPlace place = Global<const cuda::KvPlace>(a.places)[warp / groups / a.heads];
  const bool transposed = a.row_bytes == 0;
  const int64_t stride = transposed ? a.slots : 1;
  const int slot = transposed ? place.slot : 0;
  const Global<unsigned char> row =
      Global<unsigned char>(place.page) + a.first_byte + head * a.head_bytes + place.slot * a.row_bytes;
  const int64_t element = index * stride + slot;
  if constexpr (kFormat == KvFormat::kQ8) {
    const KvCode code = CodeOfLane(number);
    if (there) Store(row, element, code.code);
    if (lane != 0) return;
    const Global<unsigned char> scale = row + a.dims * stride + 2 * (group * stride + slot);
    scale[0] = static_cast<unsigned char>(code.scale & 0xff);
    scale[1] = static_cast<unsigned char>(code.scale >> 8);
  } else if (there) {
    if constexpr (kFormat == KvFormat::kF32) Store(row, element, number);
    if constexpr (kFormat == KvFormat::kF16) Store(row, element, KvHalf(number));
  }
}

inline void LaunchStoreRows(DeviceStream& stream, const cuda::StoreRowsOperation& a) {
  const unsigned warps =
      static_cast<unsigned>(a.rows) * static_cast<unsigned>(a.heads) * Blocks(static_cast<unsigned>(a.dims), kKvScaleColumns);
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
