// What a format's file gives to its row in format_table.cc, and what those files share. Layouts: format.h.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/quant/format_id.h"
#include "core/quant/half.h"

namespace moed {
class ErrorFeedback;
}

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

// How one format's file packs a block of 8 x 32 weights (row-major, magnitudes up to the format's largest) into its
// panel_block_bytes, and unpacks the weights of a panel block.
struct Codec {
  void (&decode_row)(const std::byte* in, int row, float* weights);  // row 0..7 of the block, block_columns weights
  // What each quantizer makes of it; null: nothing.
  void (*nearest)(const float* weights, std::byte* out) = nullptr;
  void (*half_quadratic)(const float* weights, std::byte* out) = nullptr;
  // `row_largest`: the greatest magnitude of each of the 8 rows over the whole matrix, which alone sets the scale.
  void (*channel)(const float* weights, const float* row_largest, std::byte* out) = nullptr;
  // A whole panel: `weights` are 8 rows of feedback.cols().
  void (*fed_back)(const float* weights, const ErrorFeedback& feedback, std::byte* out) = nullptr;
};
extern const Codec kF32Codec, kF16Codec, kBF16Codec;  // float.cc
extern const Codec kFp8Codec;                         // fp8.cc
extern const Codec kQ8Codec;                          // q8.cc
extern const Codec kQ4Codec;                          // q4.cc
extern const Codec kQ2Codec, kQ3Codec, kQ4ACodec;     // offset_codes.cc
extern const Codec kQ2SCodec, kQ2PCodec;              // byte_lines.cc

}  // namespace moed::quant
