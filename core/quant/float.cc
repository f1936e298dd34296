// f32, f16, bf16: the weights themselves, column after column.
#include "core/quant/codecs.h"

namespace moed::quant {
namespace {

uint16_t ToFloat16(float w) { return FloatToFloat16(w); }
uint16_t ToBFloat16(float w) { return FloatToBFloat16(w); }
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

void EncodeF32(const float* weights, std::byte* out) { Encode<float, Same>(weights, out); }
void EncodeF16(const float* weights, std::byte* out) { Encode<uint16_t, ToFloat16>(weights, out); }
void EncodeBF16(const float* weights, std::byte* out) { Encode<uint16_t, ToBFloat16>(weights, out); }

void DecodeRowF32(const std::byte* in, int row, float* weights) { DecodeRow<float, Same>(in, row, weights); }
void DecodeRowF16(const std::byte* in, int row, float* weights) { DecodeRow<uint16_t, Float16ToFloat>(in, row, weights); }
void DecodeRowBF16(const std::byte* in, int row, float* weights) { DecodeRow<uint16_t, BFloat16ToFloat>(in, row, weights); }

}  // namespace moed::quant
