// The bytes of the store: every position and every code, from the layout as format.h words it, not from the code.
#include <array>
#include <cstring>
#include <vector>

#include "core/quant/codec.h"
#include "core/quant/encoding.h"
#include "core/quant/format.h"
#include "core/quant/half.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace moed {
namespace layout_test {

using ::testing::Each;

constexpr uint16_t kOneHalf = 0x3800;  // 0.5 in float16
constexpr uint16_t kThree = 0x4200;

std::vector<std::byte> Bytes(FormatId id) { return std::vector<std::byte>(FormatOf(id).panel_block_bytes); }

void PutHalf(std::vector<std::byte>& block, size_t offset, uint16_t half) {
  block[offset] = std::byte(half & 0xff);
  block[offset + 1] = std::byte(half >> 8);
}

uint16_t HalfAt(const std::vector<std::byte>& block, size_t offset) {
  return static_cast<uint16_t>(std::to_integer<int>(block[offset]) | std::to_integer<int>(block[offset + 1]) << 8);
}

std::vector<float> Decode(FormatId id, const std::vector<std::byte>& block) {
  std::vector<float> weights(8 * 32);
  for (int row = 0; row < 8; ++row) FormatOf(id).codec.decode_row(block.data(), row, &weights[32 * row]);
  return weights;
}

std::vector<std::byte> Encode(FormatId id, const std::vector<float>& weights) {
  std::vector<std::byte> block = Bytes(id);
  FormatOf(id).codec.nearest(weights.data(), block.data());
  return block;
}

TEST(Layout, BlockSizes) {
  const size_t expected[] = {1024, 512,  512, 272,  144, 96,  160, 128, 176,  192, 672, 880, 1152,
                             1408, 1680, 144, 1088, 880, 136, 152, 536, 1056, 80,  96,  296};
  const size_t scales[] = {0, 0, 0, 16, 16, 32, 32, 32, 16, 32, 32, 16, 32, 32, 16, 16, 16, 16, 8, 16, 16, 0, 8, 8, 40};
  ASSERT_EQ(Formats().size(), std::size(expected));
  for (size_t i = 0; i < std::size(expected); ++i) {
    EXPECT_EQ(Formats()[i].panel_block_bytes, expected[i]) << Formats()[i].name;
    EXPECT_EQ(Formats()[i].scale_bytes, scales[i]) << Formats()[i].name;
    EXPECT_EQ(static_cast<size_t>(Formats()[i].id), i);
  }
}

TEST(Layout, FloatFormatsInterleaveRows) {
  std::vector<float> weights(8 * 32);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i) - 100;  // exact in all of them
  int tested = 0;
  for (const Format& format : Formats()) {
    if (format.scale_bytes > 0 || format.codec.nearest == nullptr) continue;  // codes: below, format by format
    ++tested;
    const FormatId id = format.id;
    const std::vector<std::byte> block = Encode(id, weights);
    for (int row = 0; row < 8; ++row) {
      for (int column = 0; column < 32; ++column) {
        const float weight = weights[32 * row + column];
        const size_t element = 8 * column + row;
        if (id == FormatId::kF32) {
          float found;
          std::memcpy(&found, block.data() + 4 * element, 4);
          EXPECT_EQ(found, weight);
        } else {
          EXPECT_EQ(HalfAt(block, 2 * element), id == FormatId::kF16 ? FloatToFloat16(weight) : FloatToBFloat16(weight));
        }
      }
    }
    EXPECT_EQ(Decode(id, block), weights);
  }
  EXPECT_GT(tested, 0);
}

TEST(Layout, Q8EveryCodeAtEveryPosition) {
  for (int code = -127; code <= 127; ++code) {
    std::vector<std::byte> block = Bytes(FormatId::kQ8);
    for (int row = 0; row < 8; ++row) PutHalf(block, 2 * row, kOneHalf);
    std::vector<float> expected(8 * 32);
    for (int row = 0; row < 8; ++row) {
      for (int v = 0; v < 8; ++v) {
        for (int j = 0; j < 4; ++j) {
          const int shifted = (code + 127 + row + 8 * v + j) % 255 - 127;
          block[16 + 32 * v + 4 * row + j] = std::byte(static_cast<uint8_t>(shifted));
          expected[32 * row + 4 * v + j] = 0.5f * static_cast<float>(shifted);
        }
      }
    }
    EXPECT_EQ(Decode(FormatId::kQ8, block), expected);
  }
}

TEST(Layout, Q4EveryCodeAtEveryPosition) {
  for (int code = 0; code < 16; ++code) {
    std::vector<std::byte> block = Bytes(FormatId::kQ4);
    for (int row = 0; row < 8; ++row) PutHalf(block, 2 * row, row % 2 == 0 ? kOneHalf : kThree);
    std::vector<float> expected(8 * 32);
    for (int row = 0; row < 8; ++row) {
      const float scale = row % 2 == 0 ? 0.5f : 3.0f;
      for (int v = 0; v < 4; ++v) {
        for (int j = 0; j < 4; ++j) {
          const int low = (code + row + v) % 16;
          const int high = (code + 3 * row + j + 5) % 16;
          block[16 + 32 * v + 4 * row + j] = std::byte(low | high << 4);
          expected[32 * row + 4 * v + j] = scale * static_cast<float>(low - 8);
          expected[32 * row + 16 + 4 * v + j] = scale * static_cast<float>(high - 8);
        }
      }
    }
    EXPECT_EQ(Decode(FormatId::kQ4, block), expected);
  }
}

TEST(Layout, Q2EveryCodeAtEveryPosition) {
  for (int code = 0; code < 4; ++code) {
    std::vector<std::byte> block = Bytes(FormatId::kQ2);
    for (int row = 0; row < 8; ++row) {
      PutHalf(block, 2 * row, kThree);
      PutHalf(block, 16 + 2 * row, FloatToFloat16(static_cast<float>(-row)));
    }
    std::vector<float> expected(8 * 32);
    for (int row = 0; row < 8; ++row) {
      for (int v = 0; v < 2; ++v) {
        for (int j = 0; j < 4; ++j) {
          int bits = 0;
          for (int i = 0; i < 4; ++i) {
            const int q = (code + row + i + j + v) % 4;
            bits |= q << (2 * i);
            expected[32 * row + 8 * i + 4 * v + j] = 3.0f * static_cast<float>(q) - static_cast<float>(row);
          }
          block[32 + 32 * v + 4 * row + j] = std::byte(bits);
        }
      }
    }
    EXPECT_EQ(Decode(FormatId::kQ2, block), expected);
  }
}

TEST(Layout, Q4AEveryCodeAtEveryPosition) {
  for (int code = 0; code < 16; ++code) {
    std::vector<std::byte> block = Bytes(FormatId::kQ4A);
    std::vector<float> expected(8 * 32);
    for (int row = 0; row < 8; ++row) {
      PutHalf(block, 2 * row, kOneHalf);
      PutHalf(block, 16 + 2 * row, FloatToFloat16(static_cast<float>(-row)));
      for (int v = 0; v < 4; ++v) {
        for (int j = 0; j < 4; ++j) {
          const int low = (code + row + j + v) % 16, high = (code + 5 * row + v) % 16;
          block[32 + 32 * v + 4 * row + j] = std::byte(low | high << 4);
          expected[32 * row + 4 * v + j] = 0.5f * static_cast<float>(low) - static_cast<float>(row);
          expected[32 * row + 16 + 4 * v + j] = 0.5f * static_cast<float>(high) - static_cast<float>(row);
        }
      }
    }
    EXPECT_EQ(Decode(FormatId::kQ4A, block), expected);
  }
}

TEST(Layout, Q3EveryCodeAtEveryPosition) {
  for (int code = 0; code < 8; ++code) {
    std::vector<std::byte> block = Bytes(FormatId::kQ3);
    std::vector<float> expected(8 * 32);
    for (int row = 0; row < 8; ++row) {
      PutHalf(block, 2 * row, kThree);
      PutHalf(block, 16 + 2 * row, FloatToFloat16(static_cast<float>(-row)));
      for (int column = 0; column < 32; ++column) {
        const int q = (code + row + column + column / 8) % 8, i = column / 8, v = column / 4 % 2, j = column % 4;
        block[32 + 32 * v + 4 * row + j] |= std::byte((q & 3) << (2 * i));
        block[32 + 64 + 4 * row + j] |= std::byte((q >> 2) << (column / 4));
        expected[32 * row + column] = 3.0f * static_cast<float>(q) - static_cast<float>(row);
      }
    }
    EXPECT_EQ(Decode(FormatId::kQ3, block), expected);
  }
}

// Scales that the encoder must find again because they leave no error; the bytes are worked out by hand.
TEST(Layout, EncodedBytesByHand) {
  std::vector<float> weights(8 * 32, 0.0f);
  weights[32 * 2 + 0] = 63.5f;  // row 2: q8 scale 0.5, code 127 in vector 0
  weights[32 * 2 + 9] = -1.5f;  // code -3 in vector 2, byte 1
  const std::vector<std::byte> q8 = Encode(FormatId::kQ8, weights);
  EXPECT_EQ(HalfAt(q8, 2 * 2), kOneHalf);
  EXPECT_EQ(q8[16 + 32 * 0 + 4 * 2 + 0], std::byte{127});
  EXPECT_EQ(q8[16 + 32 * 2 + 4 * 2 + 1], std::byte{0xfd});
  EXPECT_EQ(HalfAt(q8, 0), 0);  // a row of zeros

  std::fill(weights.begin(), weights.end(), 0.0f);
  weights[32 * 5 + 6] = -4.0f;  // row 5: q4 scale 0.5, code 0 in the low nibble of vector 1, byte 2
  weights[32 * 5 + 22] = 3.5f;  // code 15 in the high nibble of the same byte
  const std::vector<std::byte> q4 = Encode(FormatId::kQ4, weights);
  EXPECT_EQ(HalfAt(q4, 2 * 5), kOneHalf);
  EXPECT_EQ(q4[16 + 32 * 1 + 4 * 5 + 2], std::byte{0xf0});
  EXPECT_EQ(q4[16 + 32 * 0 + 4 * 5 + 0], std::byte{0x88});  // two zeros
  EXPECT_EQ(HalfAt(q4, 0), 0);

  for (int column = 0; column < 32; ++column) weights[32 * 7 + column] = 1.0f + 3.0f * static_cast<float>(column / 8);
  const std::vector<std::byte> q2 = Encode(FormatId::kQ2, weights);
  EXPECT_EQ(HalfAt(q2, 2 * 7), kThree);
  EXPECT_EQ(HalfAt(q2, 16 + 2 * 7), 0x3c00);
  EXPECT_THAT(std::vector(q2.begin() + 32 + 4 * 7, q2.begin() + 32 + 4 * 7 + 4), Each(std::byte{0xe4}));  // 3 2 1 0

  // Codes 0, 2, 5, 7 by eights: low bits 0 2 1 3, third bits in the upper half.
  for (int column = 0; column < 32; ++column) weights[32 * 7 + column] = 0.5f * (std::array{0, 2, 5, 7}[column / 8]) - 1;
  const std::vector<std::byte> q3 = Encode(FormatId::kQ3, weights);
  EXPECT_EQ(HalfAt(q3, 2 * 7), kOneHalf);
  EXPECT_EQ(HalfAt(q3, 16 + 2 * 7), 0xbc00);
  EXPECT_THAT(std::vector(q3.begin() + 32 + 4 * 7, q3.begin() + 32 + 4 * 7 + 4), Each(std::byte{0b11011000}));
  EXPECT_THAT(std::vector(q3.begin() + 96 + 4 * 7, q3.begin() + 96 + 4 * 7 + 4), Each(std::byte{0xf0}));
}

TEST(Layout, PanelsThenBlocks) {
  const int rows = 19, cols = 70;
  std::vector<float> weights(rows * cols);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i);
  std::vector<std::byte> packed(PackedBytes(FormatId::kF32, rows, cols), std::byte{0xff});
  ASSERT_EQ(packed.size(), 3u * 3 * 1024);
  ASSERT_TRUE(EncodeRows(FormatId::kF32, weights.data(), rows, cols, packed).ok());
  const auto at = [&](int row, int column) {
    float value;
    std::memcpy(&value, packed.data() + 1024 * (row / 8 * 3 + column / 32) + 4 * (8 * (column % 32) + row % 8), 4);
    return value;
  };
  for (int row = 0; row < 24; ++row) {
    for (int column = 0; column < 96; ++column) {
      EXPECT_EQ(at(row, column), row < rows && column < cols ? weights[row * cols + column] : 0.0f);
    }
  }
}

}  // namespace layout_test
}  // namespace moed
