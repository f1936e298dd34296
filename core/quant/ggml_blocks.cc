#include "core/quant/ggml_blocks.h"

#include "core/quant/codec.h"

namespace moed::quant {
namespace {

constexpr int kHalf = kBlockColumns / 2;

uint16_t Half(const std::byte* at) { return Load<uint16_t>(at); }
const uint8_t* Bytes(const std::byte* at) { return reinterpret_cast<const uint8_t*>(at); }

// kBits bits of every code at `low`: a run of kColumns columns is in the lowest bits of kColumns bytes, the next run above it.
template <int kBits, int kColumns>
void AddRuns(const std::byte* in, int columns, int low, uint8_t* codes) {
  const uint8_t* bytes = Bytes(in);
  for (int first = 0, shift = 0; first < columns; first += kColumns, shift += kBits) {
    if (shift == 8) {
      shift = 0;
      bytes += kColumns;
    }
    for (int i = 0; i < kColumns; ++i) codes[first + i] |= static_cast<uint8_t>((bytes[i] >> shift & ((1 << kBits) - 1)) << low);
  }
}
template <int kBits, int kColumns>
void UnpackRuns(const std::byte* in, int columns, uint8_t* codes) {
  std::memset(codes, 0, columns);
  AddRuns<kBits, kColumns>(in, columns, 0, codes);
}

// 16 columns in the low nibbles, the next 16 in the high ones.
void UnpackHalves(const std::byte* in, int columns, uint8_t* codes) { UnpackRuns<4, kHalf>(in, columns, codes); }

// One bit of each of 32 columns, in their order.
void AddFifthBits(const std::byte* in, uint8_t* codes) {
  const uint32_t bits = Load<uint32_t>(in);
  for (int i = 0; i < kBlockColumns; ++i) codes[i] |= static_cast<uint8_t>((bits >> i & 1) << 4);
}

// The 12 bytes with 8 scales and 8 offsets of 6 bits that Q4_K and Q5_K have.
void UnpackSixBits(const std::byte* in, RowBlock& out) {
  const uint8_t* bytes = Bytes(in);
  for (int i = 0; i < 4; ++i) {
    out.scales[i] = bytes[i] & 63;
    out.offsets[i] = bytes[4 + i] & 63;
    out.scales[4 + i] = static_cast<uint8_t>((bytes[8 + i] & 15) | bytes[i] >> 6 << 4);
    out.offsets[4 + i] = static_cast<uint8_t>(bytes[8 + i] >> 4 | bytes[4 + i] >> 6 << 4);
  }
}

}  // namespace

void UnpackQ4_0(const std::byte* block, RowBlock& out) {
  out.scale = Half(block);
  UnpackHalves(block + 2, 32, out.codes);
}

void UnpackQ4_1(const std::byte* block, RowBlock& out) {
  out.scale = Half(block);
  out.offset = Half(block + 2);
  UnpackHalves(block + 4, 32, out.codes);
}

void UnpackQ5_0(const std::byte* block, RowBlock& out) {
  out.scale = Half(block);
  UnpackHalves(block + 6, 32, out.codes);
  AddFifthBits(block + 2, out.codes);
}

void UnpackQ5_1(const std::byte* block, RowBlock& out) {
  out.scale = Half(block);
  out.offset = Half(block + 2);
  UnpackHalves(block + 8, 32, out.codes);
  AddFifthBits(block + 4, out.codes);
}

void UnpackQ8_0(const std::byte* block, RowBlock& out) {
  out.scale = Half(block);
  std::memcpy(out.codes, block + 2, 32);
}

void UnpackQ2K(const std::byte* block, RowBlock& out) {
  out.scale = Half(block + 80);
  out.offset = Half(block + 82);
  for (int i = 0; i < 16; ++i) {
    const int both = Bytes(block)[i];
    out.scales[i] = both & 15;
    out.offsets[i] = static_cast<uint8_t>(both >> 4);
  }
  UnpackRuns<2, 32>(block + 16, 256, out.codes);
}

void UnpackQ3K(const std::byte* block, RowBlock& out) {
  out.scale = Half(block + 108);
  const uint8_t* packed = Bytes(block + 96);
  for (int i = 0; i < 16; ++i) {
    const int low = packed[i % 8] >> 4 * (i / 8) & 15, high = packed[8 + i % 4] >> 2 * (i / 4) & 3;
    out.scales[i] = static_cast<uint8_t>(low | high << 4);
  }
  UnpackRuns<2, 32>(block + 32, 256, out.codes);
  AddRuns<1, 32>(block, 256, 2, out.codes);
}

void UnpackQ4K(const std::byte* block, RowBlock& out) {
  out.scale = Half(block);
  out.offset = Half(block + 2);
  UnpackSixBits(block + 4, out);
  UnpackRuns<4, 32>(block + 16, 256, out.codes);
}

void UnpackQ5K(const std::byte* block, RowBlock& out) {
  out.scale = Half(block);
  out.offset = Half(block + 2);
  UnpackSixBits(block + 4, out);
  UnpackRuns<4, 32>(block + 48, 256, out.codes);
  AddRuns<1, 32>(block + 16, 256, 4, out.codes);
}

void UnpackQ6K(const std::byte* block, RowBlock& out) {
  out.scale = Half(block + 208);
  std::memcpy(out.scales, block + 192, 16);
  UnpackRuns<4, 64>(block, 256, out.codes);
  AddRuns<2, 32>(block + 128, 256, 4, out.codes);
}

void UnpackIq4Nl(const std::byte* block, RowBlock& out) { UnpackQ4_0(block, out); }

void UnpackIq3S(const std::byte* block, RowBlock& out) {
  out.scale = Half(block);
  const uint8_t *low = Bytes(block + 2), *ninth = Bytes(block + 66), *signs = Bytes(block + 74), *scales = Bytes(block + 106);
  for (int i = 0; i < 8; ++i) out.scales[i] = scales[i / 2] >> 4 * (i % 2) & 15;
  for (int i = 0; i < 64; ++i) out.groups[i] = static_cast<uint16_t>(low[i] | (ninth[i / 8] >> i % 8 & 1) << 8);
  for (int i = 0; i < 256; ++i) out.codes[i] = signs[i / 8] >> i % 8 & 1;
}

void UnpackIq4Xs(const std::byte* block, RowBlock& out) {
  out.scale = Half(block);
  const uint16_t high = Half(block + 2);
  const uint8_t* low = Bytes(block + 4);
  for (int i = 0; i < 8; ++i) {
    out.scales[i] = static_cast<uint8_t>((low[i / 2] >> 4 * (i % 2) & 15) | (high >> 2 * i & 3) << 4);
  }
  UnpackHalves(block + 8, 256, out.codes);
}

void UnpackMxfp4(const std::byte* block, RowBlock& out) {
  out.scale = Bytes(block)[0];
  UnpackHalves(block + 1, 32, out.codes);
}

void UnpackNvfp4(const std::byte* block, RowBlock& out) {
  out.factor = 0.5f;  // levels are twice the numbers
  out.rest = 0;
  std::memcpy(out.scales, block, 4);
  UnpackRuns<4, 8>(block + 4, 64, out.codes);
}

}  // namespace moed::quant
