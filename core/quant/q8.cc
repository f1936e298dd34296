// q8: weight = d * q, one float16 scale a row of a block; the encoder's q are -127..127.
#include <algorithm>
#include <cmath>

#include "core/quant/block_layouts.h"
#include "core/quant/rounding.h"

namespace moed::quant {
namespace {

constexpr int kCodesOffset = 2 * kPanelRows;

// The scale is rounded to float16 first and the codes follow the rounded one.
uint16_t EncodeRow(const float* weights, float largest, int8_t* codes) {
  const uint16_t half = FloatToFloat16(largest / 127.0f);
  const float scale = Float16ToFloat(half);
  for (int i = 0; i < kBlockColumns; ++i) {
    const float ratio = scale > 0 ? weights[i] / scale : 0.0f;
    codes[i] = static_cast<int8_t>(RoundToEven(std::min(std::max(ratio, -127.0f), 127.0f)));
  }
  return half;
}

float LargestMagnitude(const float* weights) {
  float largest = 0;
  for (int i = 0; i < kBlockColumns; ++i) largest = std::max(largest, std::fabs(weights[i]));
  return largest;
}

void EncodeChannel(const float* weights, const float* row_largest, std::byte* out) {
  for (int row = 0; row < kPanelRows; ++row) {
    int8_t codes[kBlockColumns];
    Store(out + 2 * row, EncodeRow(weights + kBlockColumns * row, row_largest[row], codes));
    for (int v = 0; v < kBlockColumns / kGroupColumns; ++v) {
      std::memcpy(out + kCodesOffset + kVectorBytes * v + kGroupColumns * row, codes + kGroupColumns * v, kGroupColumns);
    }
  }
}

void EncodeNearest(const float* weights, std::byte* out) {
  float row_largest[kPanelRows];
  for (int row = 0; row < kPanelRows; ++row) row_largest[row] = LargestMagnitude(weights + kBlockColumns * row);
  EncodeChannel(weights, row_largest, out);
}

}  // namespace

const Codec kQ8Codec = {
    .decode_row = DecodeBlockRow<BlockLayout<FormatId::kQ8>>, .nearest = EncodeNearest, .channel = EncodeChannel};

}  // namespace moed::quant
