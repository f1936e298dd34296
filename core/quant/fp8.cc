#include "core/quant/fp8.h"

#include "core/quant/codec.h"

namespace moed::quant {
namespace {

void DecodeBlockRow(const std::byte* in, int row, float* weights) {
  const auto scale = Load<float>(in + sizeof(float) * row);
  for (int column = 0; column < kFp8BlockColumns; ++column) {
    weights[column] = E4m3ToFloat(Load<uint8_t>(in + Fp8Codes(column) + row)) * scale;
  }
}

}  // namespace

const Codec kFp8Codec = {DecodeBlockRow};

}  // namespace moed::quant
