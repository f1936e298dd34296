// The encoders and decoders behind the tables of format.h and encoding.h, one family a file. Layouts: format.h.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/quant/format.h"
#include "core/quant/half.h"

namespace moed::quant {

static_assert(std::endian::native == std::endian::little, "packed weights are little-endian");

inline constexpr float kLargestFloat16 = 65504.0f;
inline constexpr int kGroupColumns = 4;  // columns that share one 32-bit lane of the integer formats

template <class T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <class T>
void Store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(T));
}

// One of the float16 arrays (8 values, one a row) at the head of an integer block.
inline float LoadScale(const std::byte* array, int row) { return Float16ToFloat(Load<uint16_t>(array + 2 * row)); }

// Encoders: `weights` 8 x 32 row-major. Decoders: one row of 32.
void EncodeF32(const float* weights, std::byte* out);
void EncodeF16(const float* weights, std::byte* out);
void EncodeBF16(const float* weights, std::byte* out);
void EncodeQ8(const float* weights, std::byte* out);
void EncodeQ4(const float* weights, std::byte* out);
void EncodeQ2(const float* weights, std::byte* out);
void EncodeQ4A(const float* weights, std::byte* out);
void EncodeQ3(const float* weights, std::byte* out);

// Half-quadratic offsets.
void EncodeQ2Hqq(const float* weights, std::byte* out);
void EncodeQ4AHqq(const float* weights, std::byte* out);
void EncodeQ3Hqq(const float* weights, std::byte* out);

// `row_largest`: the greatest magnitude of each of the 8 rows over the whole matrix, which alone sets the scale.
void EncodeQ8Channel(const float* weights, const float* row_largest, std::byte* out);
void EncodeQ4Channel(const float* weights, const float* row_largest, std::byte* out);
void EncodeQ2Channel(const float* weights, const float* row_largest, std::byte* out);
void EncodeQ4AChannel(const float* weights, const float* row_largest, std::byte* out);
void EncodeQ3Channel(const float* weights, const float* row_largest, std::byte* out);

void DecodeRowF32(const std::byte* in, int row, float* weights);
void DecodeRowF16(const std::byte* in, int row, float* weights);
void DecodeRowBF16(const std::byte* in, int row, float* weights);
void DecodeRowQ8(const std::byte* in, int row, float* weights);
void DecodeRowQ4(const std::byte* in, int row, float* weights);
void DecodeRowQ2(const std::byte* in, int row, float* weights);
void DecodeRowQ4A(const std::byte* in, int row, float* weights);
void DecodeRowQ3(const std::byte* in, int row, float* weights);

}  // namespace moed::quant
