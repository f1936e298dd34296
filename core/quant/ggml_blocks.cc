#include "core/quant/ggml_blocks.h"

#include "core/quant/codec.h"

namespace moed::quant {
namespace {

constexpr int kHalf = kBlockColumns / 2;

const uint8_t* Bytes(const std::byte* at) { return reinterpret_cast<const uint8_t*>(at); }

// 32 columns in 16 bytes: the low nibbles' columns, then the high ones'.
void UnpackHalves(const std::byte* in, uint8_t* codes) {
  const uint8_t* bytes = Bytes(in);
  for (int i = 0; i < kHalf; ++i) {
    codes[i] = bytes[i] & 15;
    codes[kHalf + i] = bytes[i] >> 4;
  }
}

}  // namespace

void UnpackQ8_0(const std::byte* block, RowBlock& out) {
  out.scale = Load<uint16_t>(block);
  std::memcpy(out.codes, block + 2, kBlockColumns);
}

void UnpackQ4_0(const std::byte* block, RowBlock& out) {
  out.scale = Load<uint16_t>(block);
  UnpackHalves(block + 2, out.codes);
}

void UnpackQ4_1(const std::byte* block, RowBlock& out) {
  out.scale = Load<uint16_t>(block);
  out.offset = Load<uint16_t>(block + 2);
  UnpackHalves(block + 4, out.codes);
}

}  // namespace moed::quant
