// The bytes of the formats that keep a checkpoint's blocks, and of those with scales of a byte, read as docs/store-format.md
// words them, not by the code: any bytes.
#include <bit>
#include <cmath>
#include <initializer_list>
#include <random>
#include <vector>

#include "core/quant/codec.h"
#include "core/quant/encoding.h"
#include "core/quant/format.h"
#include "core/quant/half.h"
#include "core/quant/level_tables.h"
#include "gtest/gtest.h"

namespace moed {
namespace kept_layout_test {

// One row of a panel block.
class Reader {
 public:
  Reader(const std::vector<uint8_t>& block, int row) : block_(block), row_(row) {}
  float Half(int at) const { return Float16ToFloat(static_cast<uint16_t>(Byte(at + 2 * row_) | Byte(at + 2 * row_ + 1) << 8)); }
  float Float(int at) const { return FloatOfAll(at + 4 * row_); }
  float FloatOfAll(int at) const {
    uint32_t bits = 0;
    for (int i = 0; i < 4; ++i) bits |= static_cast<uint32_t>(Byte(at + i)) << 8 * i;
    return std::bit_cast<float>(bits);
  }
  int Byte(int at) const { return block_[at]; }
  int RowByte(int at) const { return Byte(at + row_); }
  // Number i of the row, `bits` of it.
  int Number(int at, int bits, int i) const {
    const int in_byte = 8 / bits;
    return RowByte(at + 8 * (i / in_byte)) >> bits * (i % in_byte) & ((1 << bits) - 1);
  }
  int SixBits(int at, int count, int i) const { return Number(at, 4, i) | Number(at + 4 * count, 2, i) << 4; }
  // The code of a column of 32, in planes that begin at `at`.
  int Code(int at, std::initializer_list<int> planes, int column) const {
    int code = 0, low = 0;
    for (const int bits : planes) {
      const int lane = 4 * row_ + column % 4;
      if (bits == 4) code |= (Byte(at + 32 * (column % 16 / 4) + lane) >> 4 * (column / 16) & 15) << low;
      if (bits == 2) code |= (Byte(at + 32 * (column % 8 / 4) + lane) >> 2 * (column / 8) & 3) << low;
      if (bits == 1) code |= (Byte(at + lane) >> column / 4 & 1) << low;
      at += 32 * bits;
      low += bits;
    }
    return code;
  }

  // Of a column of 32, in pairs of columns 16 apart.
  int PairLevel(int at, int column) const {
    const int pair = column % 16, s = pair / 4, j = pair % 4;
    const int n = Byte(at + 32 * (s % 2) + 4 * row_ + j) >> (s < 2 ? 0 : 4) & 15;
    const int h = Byte(at + 64 + 4 * (row_ % 4) + j) >> (row_ < 4 ? s : 4 + s) & 1;
    if (column < 16) return 1 + n / 3;
    return h == 0 ? 1 + n % 3 : 6 - n % 3;
  }

 private:
  const std::vector<uint8_t>& block_;
  const int row_;
};

// Sign, 4 bits of exponent, 3 of mantissa.
float E4m3(int code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  const float magnitude =
      exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9) : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return code >> 7 != 0 ? -magnitude : magnitude;
}

// 5 bits of exponent, 3 of mantissa.
float ByteScale(int byte) { return std::ldexp(static_cast<float>(8 + byte % 8), byte / 8 - 27); }

int Magnitude(int row, int i) { return 2 * (kIq3sDigits[row] >> 3 * i & 7) + 1; }

// The weight of a column of a block.
float Expected(FormatId format, const Reader& r, int column) {
  const int b = column / 32, k = column % 32, part = column / 16;
  const float d = r.Half(0);
  const auto whole = [](int number) { return static_cast<float>(number); };
  switch (format) {
    case FormatId::kQ5_0:
      return d * whole(r.Code(16, {4, 1}, k) - 16);
    case FormatId::kQ5_1:
      return d * whole(r.Code(32, {4, 1}, k)) + r.Half(16);
    case FormatId::kQ2K:
      return d * whole(r.Number(32, 4, part)) * whole(r.Code(160 + 64 * b, {2}, k)) - r.Half(16) * whole(r.Number(96, 4, part));
    case FormatId::kQ3K:
      return d * whole(r.SixBits(16, 16, part) - 32) * whole(r.Code(112 + 96 * b, {2, 1}, k) - 4);
    case FormatId::kQ4K:
      return d * whole(r.SixBits(32, 8, b)) * whole(r.Code(128 + 128 * b, {4}, k)) - r.Half(16) * whole(r.SixBits(80, 8, b));
    case FormatId::kQ5K:
      return d * whole(r.SixBits(32, 8, b)) * whole(r.Code(128 + 160 * b, {4, 1}, k)) - r.Half(16) * whole(r.SixBits(80, 8, b));
    case FormatId::kQ6K:
      return d * static_cast<int8_t>(r.RowByte(16 + 8 * part)) * whole(r.Code(144 + 192 * b, {4, 2}, k) - 32);
    case FormatId::kIq4Nl:
      return d * kIq4Levels[r.Code(16, {4}, k)];
    case FormatId::kIq4Xs:
      return d * whole(r.SixBits(16, 8, b) - 32) * kIq4Levels[r.Code(64 + 128 * b, {4}, k)];
    case FormatId::kIq3S: {
      const int at = 48 + 104 * b, group = k / 4;
      const int row = r.RowByte(at + 8 * group) | (r.RowByte(at + 64) >> group & 1) << 8;
      const int level = Magnitude(row, k % 4) * (r.Code(at + 72, {1}, k) != 0 ? -1 : 1);
      return d * whole(2 * r.Number(16, 4, b) + 1) * whole(level);
    }
    case FormatId::kMxfp4:
      return std::ldexp(1.0f, r.RowByte(0) - 128) * kMxfp4Levels[r.Code(8, {4}, k)];
    case FormatId::kQ4Z:
      return d * whole(r.Code(24, {4}, k) - r.RowByte(16));
    case FormatId::kQ4Z128:
      return d * whole(r.Code(24 + 128 * b, {4}, k) - r.RowByte(16));
    case FormatId::kFp8:
      return E4m3(r.RowByte(32 + 8 * column)) * r.Float(0);
    case FormatId::kQ2S:
      return ByteScale(r.RowByte(0)) * (whole(r.Code(16, {2}, k)) + whole(static_cast<int8_t>(r.RowByte(8))) / 16);  // exact
    case FormatId::kQ2P:
      return ByteScale(r.RowByte(0)) * (whole(r.PairLevel(16, k)) + whole(static_cast<int8_t>(r.RowByte(8))) / 16);
    case FormatId::kNvfp4: {
      const float number = E4m3(r.RowByte(8 + 8 * part));
      const float scale = std::fma(number, r.FloatOfAll(0), number * r.FloatOfAll(4));
      return scale * kMxfp4Levels[r.Code(40 + 128 * b, {4}, k)];
    }
    default:
      ADD_FAILURE() << "no layout";
      return 0;
  }
}

TEST(KeptLayout, AsTheDocumentSays) {
  std::mt19937 random(7);
  int tested = 0;
  for (const Format& format : Formats()) {
    if (format.id < FormatId::kQ5_0) continue;  // layout_test.cc
    ++tested;
    for (int round = 0; round < 50; ++round) {
      std::vector<uint8_t> block(format.panel_block_bytes);
      for (uint8_t& byte : block) byte = static_cast<uint8_t>(random());
      for (size_t i = 1; i < format.scale_bytes && format.scale_bytes >= 16; i += 2) block[i] &= 0xbf;  // finite
      for (int i = 3; i < 32 && format.id == FormatId::kFp8; i += 4) block[i] &= 0xbf;
      for (int i = 8; i < 40 && format.id == FormatId::kNvfp4; ++i) block[i] %= 0x7f;  // what e4m3 has without a sign
      for (int row = 0; row < kPanelRows; ++row) {
        std::vector<float> weights(format.block_columns);
        format.codec.decode_row(reinterpret_cast<const std::byte*>(block.data()), row, weights.data());
        for (int column = 0; column < format.block_columns; ++column) {
          ASSERT_EQ(weights[column], Expected(format.id, Reader(block, row), column))
              << format.name << " row " << row << " column " << column;
        }
      }
    }
  }
  EXPECT_GT(tested, 10);
}

}  // namespace kept_layout_test
}  // namespace moed
