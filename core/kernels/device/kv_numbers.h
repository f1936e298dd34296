// Keys and values as pages hold them (kv_rows.h), a number at a time. Rows of q8 may begin at any byte.
#pragma once

#include "core/kernels/cuda/language.h"
#include "core/kernels/kv_rows.h"
#include "core/quant/half.h"
#include "core/quant/rounding.h"

namespace moed {
inline namespace MOED_CUDA_LANGUAGE {
namespace {

constexpr float kLargestKvHalf = 65504;
constexpr float kLargestKvCode = 127;
constexpr uint16_t kKvNanHalf = 0x7e00;

__device__ inline float Within(float x, float largest) { return x < -largest ? -largest : largest < x ? largest : x; }

__device__ inline uint16_t KvHalf(float x) { return FloatToFloat16(Within(x, kLargestKvHalf)); }

// A number as a page holds it: several may be on their way before the first is widened.
template <KvFormat kFormat>
struct KvStored;
template <>
struct KvStored<KvFormat::kF32> {
  float number;
};
template <>
struct KvStored<KvFormat::kF16> {
  uint16_t half;
};
template <>
struct KvStored<KvFormat::kQ8> {
  int8_t code;
  unsigned char low, high;  // of the scale
};

// Number `index` of a row of `dims`, whose elements are `stride` apart from `slot` on: 1 and 0 for a row that lies together, the
// page's tokens and the position's slot for a transposed one.
template <KvFormat kFormat>
__device__ inline KvStored<kFormat> LoadKv(Global<const unsigned char> row, int dims, int64_t stride, int slot, int index) {
  const int64_t element = index * stride + slot;
  if constexpr (kFormat == KvFormat::kF32) return {Load<float>(row, element)};
  if constexpr (kFormat == KvFormat::kF16) return {Load<uint16_t>(row, element)};
  if constexpr (kFormat == KvFormat::kQ8) {
    const Global<const unsigned char> scale = row + dims * stride + 2 * (index / kKvScaleColumns * stride + slot);
    return {Load<int8_t>(row, element), scale[0], scale[1]};
  }
}

template <KvFormat kFormat>
__device__ inline float WidenKv(const KvStored<kFormat>& stored) {
  if constexpr (kFormat == KvFormat::kF32) return stored.number;
  if constexpr (kFormat == KvFormat::kF16) return Float16ToFloat(stored.half);
  if constexpr (kFormat == KvFormat::kQ8) {
    return static_cast<float>(stored.code) * Float16ToFloat(static_cast<uint16_t>(stored.low | stored.high << 8));
  }
}

template <KvFormat kFormat>
__device__ inline float KvNumber(Global<const unsigned char> row, int dims, int64_t stride, int slot, int index) {
  return WidenKv<kFormat>(LoadKv<kFormat>(row, dims, stride, slot, index));
}

// What a group of up to 32 numbers becomes, a lane each; every lane of the warp takes part, those beyond `count` with 0.
struct KvCode {
  uint16_t scale;
  int8_t code;
};
__device__ inline KvCode CodeOfLane(float number) {
  float largest = fabsf(number);
  const bool finite = __all_sync(0xffffffffu, (__float_as_uint(number) & 0x7f800000u) != 0x7f800000u);
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, largest, lanes);
    largest = largest < other ? other : largest;
  }
  const uint16_t half = finite ? KvHalf(largest / kLargestKvCode) : kKvNanHalf;
  const float scale = Float16ToFloat(half);
  if (!(scale > 0)) return {half, 0};
  return {half, static_cast<int8_t>(RoundToEven(Within(number / scale, kLargestKvCode)))};
}

}  // namespace
}  // namespace MOED_CUDA_LANGUAGE
}  // namespace moed
