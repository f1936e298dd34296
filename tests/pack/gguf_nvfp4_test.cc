// Matrices of NVFP4 in a GGUF: blocks, and a number beside them.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <random>

#include "core/store/store.h"
#include "tests/pack/command.h"
#include "tests/pack/tiny_gguf.h"

namespace moed {
namespace gguf_nvfp4_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using tiny_gguf::kExperts;
using tiny_gguf::kFfn;
using tiny_gguf::kHidden;
using tiny_gguf::Named;
using tiny_gguf::Opened;
using tiny_gguf::Tiny;

constexpr uint32_t kNvfp4 = 40, kNvfp4Bytes = 36;
constexpr char kDown[] = "blk.0.ffn_down_exps";

// Any codes and scales; a row of them is one block.
TestGguf WithNvfp4(std::vector<float> scales) {
  TestGguf file = Tiny();
  TestGguf::Tensor& down = Named(file, std::string(kDown) + ".weight");
  std::mt19937 random(2);
  down.type = kNvfp4;
  down.data.clear();
  for (uint32_t i = 0; i < kExperts * kHidden * kNvfp4Bytes; ++i) {
    down.data += static_cast<char>(i % kNvfp4Bytes < 4 ? random() % 0x7f : random() % 256);
  }
  if (scales.empty()) return file;
  std::string bytes;
  for (const float scale : scales) bytes += Little(scale);
  file.tensors.push_back({std::string(kDown) + ".scale", {scales.size()}, 0, bytes});
  file.tensors.push_back({std::string(kDown) + ".input_scale", {scales.size()}, 0, bytes});
  return file;
}

// Of a block: level times the scale, which is the number of e4m3 times that of the tensor, rounded.
float WeightOfNvfp4(const std::string& data, uint32_t block, uint32_t column, float number) {
  const auto byte = [&](uint32_t at) { return static_cast<uint8_t>(data[block * kNvfp4Bytes + at]); };
  const uint32_t part = column / 16, in_part = column % 16;
  const int code = byte(4 + 8 * part + in_part % 8) >> (in_part < 8 ? 0 : 4) & 15, scale = byte(part);
  const auto e4m3 = static_cast<float>(scale < 8 ? std::ldexp(scale, -9) : std::ldexp(8 + scale % 8, scale / 8 - 10));
  const float numbers[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  return (code < 8 ? 1.0f : -1.0f) * numbers[code % 8] * (e4m3 * number);
}

// llama.cpp's converter leaves it out where it is 1.
TEST(GgufNvfp4Test, MatricesOfNvfp4HaveANumberBesideThem) {
  const std::vector<float> each = {0.3f, 0.00012345f, 7};
  for (const std::vector<float>& scales : {each, std::vector<float>{0.3f}, std::vector<float>{}}) {
    const TestGguf file = WithNvfp4(scales);
    const std::string data = Named(const_cast<TestGguf&>(file), std::string(kDown) + ".weight").data;
    TemporaryFolder folder;
    WriteContents(folder / "tiny.gguf", file.Bytes());
    for (const std::string formats : {"keep", "f32"}) {
      const std::string out = folder / formats;
      const CommandResult packed = RunPack({folder / "tiny.gguf", out, "--expert-formats", formats});
      ASSERT_EQ(packed.exit_code, 0) << packed.err;
      const auto store = StoreReader::Open(out).value();
      const std::string bytes = FileContents(out);
      for (uint32_t row = 0; row < kExperts * kHidden; ++row) {
        const int expert = static_cast<int>(row / kHidden);
        const ExpertSegment& segment = store->description().precisions[0].layers[0].segments.back();
        ASSERT_EQ(segment.part, ExpertPart::kDown);
        ASSERT_EQ(segment.format, formats == "keep" ? FormatId::kNvfp4 : FormatId::kF32);
        const char* record = bytes.data() + store->RecordOffset({LayerId(0), expert, kReferencePrecision}) + segment.offset;
        std::vector<float> found(kFfn), expected;
        DecodeRow(segment.format, reinterpret_cast<const std::byte*>(record), kFfn, static_cast<int>(row % kHidden),
                  found.data());
        const float number = scales.empty() ? 1 : scales[scales.size() == 1 ? 0 : expert];
        for (uint32_t column = 0; column < kFfn; ++column) expected.push_back(WeightOfNvfp4(data, row, column, number));
        EXPECT_EQ(found, expected) << row;
      }
    }
  }
}

TEST(GgufNvfp4Test, NumbersOfNvfp4ThatDoNotFitAreNamed) {
  EXPECT_THAT(Opened(WithNvfp4({1, 1})).error(),
              AllOf(HasSubstr("ffn_down_exps.scale\""), HasSubstr("has 2 numbers, expected 3 or 1")));
  for (const float number : {0.0f, -1.0f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    EXPECT_THAT(Opened(WithNvfp4({1, number, 1})).error(),
                AllOf(HasSubstr("ffn_down_exps.scale\""), HasSubstr("expected a number from")));
  }
  TestGguf file = WithNvfp4({});
  Named(file, std::string(kDown) + ".weight").data[(kHidden + 3) * kNvfp4Bytes + 2] = '\x7f';
  TemporaryFolder folder;
  WriteContents(folder / "tiny.gguf", file.Bytes());
  EXPECT_THAT(RunPack({folder / "tiny.gguf", folder / "out"}).err,
              AllOf(HasSubstr("ffn_down_exps.weight[1]"), HasSubstr("row 3 from column 32"), HasSubstr("byte 127")));
}

}  // namespace gguf_nvfp4_test
}  // namespace moed
