// f32, f16, bf16: the weights themselves, column after column.
#include "core/quant/codec.h"

namespace moed::quant {
namespace {

float Same(float w) { return w; }

template <class Element, Element (*kConvert)(float)>
void Encode(const float* weights, std::byte* out) {
  for (int column = 0; column < kBlockColumns; ++column) {
    for (int row = 0; row < kPanelRows; ++row) {
      Store(out + sizeof(Element) * (kPanelRows * column + row), kConvert(weights[kBlockColumns * row + column]));
    }
  }
}

template <class Element, float (*kConvert)(Element)>
void DecodeRow(const std::byte* in, int row, float* weights) {
  for (int column = 0; column < kBlockColumns; ++column) {
    weights[column] = kConvert(Load<Element>(in + sizeof(Element) * (kPanelRows * column + row)));
  }
}

}  // namespace

const Codec kF32Codec = {DecodeRow<float, Same>, Encode<float, Same>};
const Codec kF16Codec = {DecodeRow<uint16_t, Float16ToFloat>, Encode<uint16_t, FloatToFloat16>};
const Codec kBF16Codec = {DecodeRow<uint16_t, BFloat16ToFloat>, Encode<uint16_t, FloatToBFloat16>};

}  // namespace moed::quant
