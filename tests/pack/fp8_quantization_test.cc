// Quantised safetensors whose numbers are FP8: scales of rows, of blocks that begin anywhere, of experts in one tensor.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>

#include "core/model/family.h"
#include "core/quant/fp8.h"
#include "core/quant/half.h"
#include "core/store/store.h"
#include "tests/file_text.h"
#include "tests/pack/command.h"
#include "tests/pack/quantized.h"
#include "tools/pack/tensor_parts.h"

namespace moed {
namespace quantization_test {

// A scale for each row.
TEST(QuantizationTest, Fp8OfCompressedTensorsHasScalesOfRows) {
  const int rows = 8, cols = 128;
  std::mt19937 random(1);
  TestTensors made = {{"m.weight", {"F8_E4M3", {rows, cols}, ""}}, {"m.weight_scale", {"BF16", {rows, 1}, ""}}};
  std::vector<float> expected;
  for (int row = 0; row < rows; ++row) {
    const float scale = BFloat16ToFloat(FloatToBFloat16(0.01f * static_cast<float>(row + 1)));
    Append(FloatToBFloat16(scale), made["m.weight_scale"].bytes);
    for (int col = 0; col < cols; ++col) {
      const auto code = static_cast<uint8_t>(random() % 0x7f);
      Append(code, made["m.weight"].bytes);
      const int exponent = code >> 3, mantissa = code & 7;
      const double number = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
      expected.push_back(static_cast<float>(number) * scale);
    }
  }
  for (const char* const name : {"a.self_attn.k_scale", "a.self_attn.v_scale"}) made[name] = {"F32", {1}, "1234"};
  Tensors tensors = TensorsOf(made);
  json config = CompressedConfig("float-quantized", 8, "channel", nullptr);
  config["kv_cache_scheme"] = {{"num_bits", 8}, {"strategy", "tensor"}, {"type", "float"}};
  config["transform_config"] = Transforms("weight_output");
  const absl::Status joined = Join(config, tensors);
  ASSERT_TRUE(joined.ok()) << joined;
  EXPECT_EQ(tensors.size(), 1u);
  EXPECT_EQ(Encoded(tensors.at("m.weight"), {{FormatId::kFp8}, true}), expected);
}

std::vector<float> FloatsOf(const TestTensor& tensor) {
  std::vector<float> numbers(tensor.bytes.size() / sizeof(float));
  std::memcpy(numbers.data(), tensor.bytes.data(), tensor.bytes.size());
  return numbers;
}

// A matrix of the checkpoint as FP8 in blocks that begin anywhere in a head, and what it means.
std::pair<TestTensor, TestTensor> RandomFp8(const TestTensor& scales, uint64_t block_rows, uint64_t rows, uint64_t cols,
                                            std::mt19937& random) {
  const std::vector<float> scale = FloatsOf(scales);
  TestTensor codes{"F8_E4M3", {rows, cols}, RandomBytes(rows * cols, random)}, numbers{"F32", {rows, cols}, ""};
  for (uint64_t i = 0; i < rows * cols; ++i) {
    if ((codes.bytes[i] & 0x7f) == 0x7f) codes.bytes[i] = 1;
    const auto code = static_cast<uint8_t>(codes.bytes[i]);
    const float weight = quant::E4m3ToFloat(code) * scale[i / cols / block_rows * (cols / 128) + i % cols / 128];
    numbers.bytes.append(reinterpret_cast<const char*>(&weight), sizeof(weight));
  }
  return {codes, numbers};
}

// DeepSeek-V3 as it is released: kv_b, whose keys are transposed head by head, is FP8 too.
TEST(QuantizationTest, KeysAndValuesOfALatentAreDividedWhereTheyAreFp8) {
  constexpr uint64_t kBlockRows = 16;
  json config = TinyConfig("deepseek_v3");
  config.update({{"kv_lora_rank", 256}, {"hidden_size", 128}, {"moe_intermediate_size", 128}});
  TinyCheckpoint plain = FillTinyCheckpoint(config, "F32");
  const Family& family = **FamilyOf(config.dump());
  for (const TensorPart& part : family.parts(*family.read_spec(config.dump(), ""))) {
    plain.tensors.erase(part.name);
    plain.tensors[part.whole] = RandomTensor("F32", part.whole_shape, 1);
  }
  TinyCheckpoint quantised = plain;
  quantised.config["quantization_config"] = Fp8Config({kBlockRows, 128});
  std::mt19937 random(6);
  int divided = 0;
  for (auto& [name, tensor] : plain.tensors) {
    const bool latent = name.ends_with("kv_b_proj.weight");
    if (!latent && name.find(".experts.") == std::string::npos) continue;
    divided += latent;
    const uint64_t rows = tensor.shape[0], cols = tensor.shape[1];
    const TestTensor scales = RandomTensor("F32", {(rows + kBlockRows - 1) / kBlockRows, cols / 128}, random());
    quantised.tensors[name + "_scale_inv"] = scales;
    std::tie(quantised.tensors[name], tensor) = RandomFp8(scales, kBlockRows, rows, cols, random);
  }
  EXPECT_EQ(divided, config["num_hidden_layers"]);
  TemporaryFolder folder;
  plain.Write(folder / "plain");
  quantised.Write(folder / "quantised");
  for (const std::string name : {"plain", "quantised"}) {
    const CommandResult packed =
        RunPack({folder / name, folder / (name + ".store"), "--expert-formats", "f32", "--trunk-format", "f32"});
    ASSERT_EQ(packed.exit_code, 0) << packed.err;
  }
  EXPECT_TRUE(FileContents(folder / "plain.store") == FileContents(folder / "quantised.store"));
  const CommandResult kept = RunPack({folder / "quantised", folder / "kept.store"});
  ASSERT_EQ(kept.exit_code, 0) << kept.err;
  const auto store = StoreReader::Open(folder / "kept.store").value();
  EXPECT_EQ(PrecisionName(store->description().precisions[0]), "fp8");
  EXPECT_EQ(store->FindTensor("layers.1.k_b").value()->format, FormatId::kF32);
}

// Mistral Small 4 is released so: the experts of a layer are one tensor, with a scale for each.
TEST(QuantizationTest, ExpertsInOneTensorHaveAScaleEach) {
  constexpr uint64_t kExperts = 3, kRows = 4, kCols = 128;
  json config = Fp8Config(nullptr);
  config.update({{"activation_scheme", "static"}, {"dequantize", false}});
  const TestTensor one = RandomTensor("F32", {}, 1), each = RandomTensor("F32", {kExperts, 1, 1}, 2);
  std::mt19937 random(3);
  const auto [matrix, matrix_numbers] = RandomFp8(one, kRows, kRows, kCols, random);
  auto [experts, experts_numbers] = RandomFp8(each, kRows, kExperts * kRows, kCols, random);
  experts.shape = {kExperts, kRows, kCols};
  Tensors tensors = TensorsOf({{"m.weight", matrix},
                               {"m.weight_scale_inv", one},
                               {"m.activation_scale", one},
                               {"x.experts.down_proj", experts},
                               {"x.experts.down_proj_scale_inv", each},
                               {"x.experts.down_proj_activation_scale", each}});
  const absl::Status joined = Join(config, tensors);
  ASSERT_TRUE(joined.ok()) << joined;
  EXPECT_EQ(tensors.size(), 2u) << "activations keep no scales";
  EXPECT_EQ(Encoded(tensors.at("m.weight"), {{FormatId::kFp8}, true}), FloatsOf(matrix_numbers));
  // The second expert as it lies, and transposed as other families have it.
  const TensorPart parts[] = {{.name = "rows",
                               .whole = "x.experts.down_proj",
                               .whole_shape = {kExperts, kRows, kCols},
                               .rows = kRows,
                               .cols = kCols,
                               .offset = kRows * kCols,
                               .row_stride = kCols},
                              {.name = "columns",
                               .whole = "x.experts.down_proj",
                               .whole_shape = {kExperts, kRows, kCols},
                               .rows = kCols,
                               .cols = kRows,
                               .offset = kRows * kCols,
                               .row_stride = 1,
                               .col_stride = kCols}};
  const absl::Status divided = DivideTensors(parts, tensors);
  ASSERT_TRUE(divided.ok()) << divided;
  const std::vector<float> all = FloatsOf(experts_numbers);
  const std::vector<float> second(all.begin() + kRows * kCols, all.begin() + 2 * kRows * kCols);
  EXPECT_EQ(Encoded(tensors.at("rows"), {{FormatId::kFp8}, true}), second);
  const std::vector<float> columns = Encoded(tensors.at("columns"), {{FormatId::kF32}});
  for (uint64_t row = 0; row < kRows; ++row) {
    for (uint64_t col = 0; col < kCols; ++col)
      ASSERT_EQ(columns[col * kRows + row], second[row * kCols + col]) << row << " " << col;
  }

  Tensors wrong = TensorsOf({{"x.experts.down_proj", experts}, {"x.experts.down_proj_scale_inv", one}});
  EXPECT_THAT(std::string(Join(config, wrong).message()),
              AllOf(HasSubstr("\"x.experts.down_proj_scale_inv\""), HasSubstr("expected (3, 1, 1)")));
}

}  // namespace quantization_test
}  // namespace moed
