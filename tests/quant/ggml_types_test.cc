#include "core/quant/ggml_types.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/file_text.h"
#include "tests/paths.h"

namespace moed {
namespace ggml_types_test {

// What tools/parity/make_ggml_golden.py wrote of one type.
struct Golden {
  std::vector<std::byte> blocks;
  std::vector<float> weights;
};

std::map<uint32_t, Golden> ReadGolden() {
  std::istringstream file(ReadFileText(SourcePath("tests/quant/data/ggml_blocks.bin.xz")));
  std::map<uint32_t, Golden> all;
  uint32_t head[4];  // number, columns and bytes of a block, blocks
  while (file.read(reinterpret_cast<char*>(head), sizeof(head))) {
    Golden golden;
    golden.blocks.resize(size_t{head[3]} * head[2]);
    golden.weights.resize(size_t{head[3]} * head[1]);
    file.read(reinterpret_cast<char*>(golden.blocks.data()), static_cast<std::streamsize>(golden.blocks.size()));
    file.read(reinterpret_cast<char*>(golden.weights.data()), static_cast<std::streamsize>(4 * golden.weights.size()));
    EXPECT_TRUE(file.good());
    const GgmlType* type = FindGgmlType(head[0]);
    EXPECT_NE(type, nullptr) << "type " << head[0];
    if (type == nullptr) continue;
    EXPECT_EQ(type->block_columns, static_cast<int>(head[1]));
    EXPECT_EQ(type->block_bytes, head[2]);
    all[head[0]] = std::move(golden);
  }
  return all;
}

// Zeros of either sign differ, any NaN stands for every other.
::testing::AssertionResult SameBits(std::span<const float> found, std::span<const float> expected) {
  if (found.size() != expected.size()) return ::testing::AssertionFailure() << found.size() << " of " << expected.size();
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::bit_cast<uint32_t>(found[i]) == std::bit_cast<uint32_t>(expected[i])) continue;
    if (std::isnan(found[i]) && std::isnan(expected[i])) continue;
    return ::testing::AssertionFailure() << "weight " << i << ": " << std::hexfloat << found[i] << ", not " << expected[i];
  }
  return ::testing::AssertionSuccess();
}

TEST(GgmlTypes, AreFoundByNumber) {
  std::set<std::string_view> names;
  for (const GgmlType& type : GgmlTypes()) {
    EXPECT_EQ(FindGgmlType(type.id), &type);
    EXPECT_TRUE(names.insert(type.name).second) << type.name;
    EXPECT_EQ(RowBytes(type, 3 * type.block_columns), 3 * type.block_bytes);
  }
  for (const uint32_t unknown : {4u, 5u, 9u, 15u, 16u, 24u, 31u, 1000u, ~0u}) EXPECT_EQ(FindGgmlType(unknown), nullptr);
}

TEST(GgmlTypes, DecodeToTheFloatsOfThePythonPackage) {
  const std::map<uint32_t, Golden> all = ReadGolden();
  for (const GgmlType& type : GgmlTypes()) {
    ASSERT_TRUE(all.contains(type.id)) << type.name;
    const Golden& golden = all.at(type.id);
    std::vector<float> found(golden.weights.size());
    DecodeRow(type, golden.blocks.data(), static_cast<int>(found.size()), found.data());
    EXPECT_TRUE(SameBits(found, golden.weights)) << type.name;
  }
}

// In rows of several widths, so that panels are full and not.
TEST(GgmlTypes, KeptRowsDecodeToTheSameFloats) {
  for (const auto& [id, golden] : ReadGolden()) {
    const GgmlType& type = *FindGgmlType(id);
    const int blocks = static_cast<int>(golden.blocks.size() / type.block_bytes);
    for (const int blocks_a_row : {1, 2, 3, blocks / 2, blocks}) {
      const int rows = blocks / blocks_a_row, cols = blocks_a_row * type.block_columns;
      std::vector<std::byte> kept(PackedBytes(type.kept, rows, cols), std::byte{0xff});
      KeepRows(type, golden.blocks.data(), rows, cols, kept.data());
      for (int row = 0; row < rows; ++row) {
        std::vector<float> found(cols);
        DecodeRow(type.kept, kept.data(), cols, row, found.data());
        ASSERT_TRUE(SameBits(found, std::span(golden.weights).subspan(size_t(row) * cols, cols))) << type.name << " row " << row;
      }
    }
  }
}

TEST(GgmlTypes, RowsBelowTheMatrixAreZero) {
  for (const auto& [id, golden] : ReadGolden()) {
    const GgmlType& type = *FindGgmlType(id);
    const int cols = 2 * type.block_columns;
    std::vector<std::byte> kept(PackedBytes(type.kept, 3, cols), std::byte{0xff});
    KeepRows(type, golden.blocks.data(), 3, cols, kept.data());
    for (int row = 3; row < kPanelRows; ++row) {
      std::vector<float> found(cols, 1.0f);
      DecodeRow(type.kept, kept.data(), cols, row, found.data());
      EXPECT_TRUE(std::all_of(found.begin(), found.end(), [](float weight) { return weight == 0; })) << type.name;
    }
  }
}

TEST(GgmlTypes, KeptRowsTakeNoMoreBytes) {
  for (const GgmlType& type : GgmlTypes()) {
    const size_t bytes = 16 * RowBytes(type, 2048), kept = PackedBytes(type.kept, 16, 2048);
    const double most = type.kept == FormatId::kNvfp4 ? 1.03 : 1.01;  // which has what is one number of the tensor in every block
    EXPECT_LE(static_cast<double>(kept), most * static_cast<double>(bytes)) << type.name;
  }
}

}  // namespace ggml_types_test
}  // namespace moed
