// Weights that the checkpoint has quantised: AWQ, GPTQ and FP8, kept and read as floats.
#include "tools/pack/quantization.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <tuple>
#include <utility>

#include "core/base/executor.h"
#include "core/io/file.h"
#include "core/model/family.h"
#include "core/quant/fp8.h"
#include "core/quant/half.h"
#include "core/quant/safetensors_types.h"
#include "core/store/store.h"
#include "tests/file_text.h"
#include "tests/pack/command.h"
#include "tests/pack/tiny_checkpoint.h"
#include "tests/paths.h"
#include "tools/pack/encoder.h"
#include "tools/pack/safetensors.h"
#include "tools/pack/tensor_parts.h"

namespace moed {
namespace quantization_test {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Tensors = absl::flat_hash_map<std::string, SourceTensor>;

constexpr char kGolden[] = "tests/pack/data/quantized.safetensors.xz";  // tools/parity/make_quantized.py

json AwqConfig(int group) {
  return {{"quant_method", "awq"}, {"bits", 4}, {"group_size", group}, {"zero_point", true}, {"version", "gemm"}};
}
json GptqConfig(int group, const std::string& format) {
  return {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", group}, {"desc_act", false}, {"checkpoint_format", format}};
}
json Fp8Config(json block) {
  return {{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"activation_scheme", "dynamic"}, {"weight_block_size", std::move(block)}};
}

// As Kimi-K2-Thinking and GLM-4.5-FP8 say it.
json CompressedConfig(const std::string& format, int bits, const std::string& strategy, json group) {
  const json weights = {{"actorder", nullptr},
                        {"block_structure", nullptr},
                        {"dynamic", false},
                        {"group_size", std::move(group)},
                        {"num_bits", bits},
                        {"observer", "minmax"},
                        {"observer_kwargs", json::object()},
                        {"strategy", strategy},
                        {"symmetric", true},
                        {"type", format == "pack-quantized" ? "int" : "float"}};
  return {{"quant_method", "compressed-tensors"},
          {"format", format},
          {"ignore", {"lm_head", "re:.*self_attn.*"}},
          {"kv_cache_scheme", nullptr},
          {"quantization_status", "compressed"},
          {"global_compression_ratio", nullptr},
          {"config_groups",
           {{"group_0",
             {{"input_activations", nullptr}, {"output_activations", nullptr}, {"targets", {"Linear"}}, {"weights", weights}}}}}};
}

// A rotation of weights, as Laguna-XS.2-FP8 has it.
json Transforms(const std::string& location) {
  const json apply = {{"ignore", json::array()}, {"inverse", false}, {"location", location}, {"targets", {"re:.*o_proj$"}}};
  return {{"config_groups", {{"R1", {{"apply", {apply}}, {"requires_grad", false}, {"type", "hadamard"}}}}}};
}

// Those of one matrix.
Tensors GoldenTensors(const std::string& matrix) {
  auto read =
      ReadSafetensors(std::shared_ptr<const RandomAccessFile>(MakeMemoryFile(kGolden, ReadFileText(SourcePath(kGolden)))));
  EXPECT_TRUE(read.ok()) << read.status();
  Tensors tensors;
  for (SourceTensor& tensor : *read) {
    if (tensor.name.starts_with(matrix + ".")) tensors[tensor.name] = tensor;
  }
  return tensors;
}

absl::Status Join(const json& quantization, Tensors& tensors) {
  std::string config = json{{"quantization_config", quantization}}.dump();
  const absl::StatusOr<Quantization> taken = TakeQuantization(config);
  EXPECT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(config, "{}");
  return JoinQuantized(*taken, tensors);
}

// [row * cols + column] of what `target` makes of it.
std::vector<float> Encoded(const SourceTensor& source, const MatrixTarget& target) {
  const int rows = static_cast<int>(source.shape[0]), cols = static_cast<int>(source.shape[1]);
  std::vector<std::byte> packed;
  InlineExecutor executor;
  const absl::Status status =
      TensorEncoder(executor).EncodeMatrix(source, {&target, 1}, [&](size_t, std::span<const std::byte> bytes) {
        packed.insert(packed.end(), bytes.begin(), bytes.end());
        return absl::OkStatus();
      });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(packed.size(), PackedBytes(target.encoding.format, rows, cols));
  std::vector<float> decoded(static_cast<size_t>(rows) * cols);
  for (int r = 0; r < rows; ++r)
    DecodeRow(target.encoding.format, packed.data(), cols, r, &decoded[static_cast<size_t>(r) * cols]);
  return decoded;
}

struct GoldenCase {
  std::string name;
  json config;
  FormatId kept;
};

std::vector<GoldenCase> GoldenCases() {
  return {{"awq128", AwqConfig(128), FormatId::kQ4Z128},
          {"awq32", AwqConfig(32), FormatId::kQ4Z},
          {"gptq128", GptqConfig(128, "gptq"), FormatId::kQ4Z128},
          {"gptq64", GptqConfig(64, "gptq"), FormatId::kQ4Z},
          {"gptq_v2", GptqConfig(-1, "gptq_v2"), FormatId::kQ4Z128},
          {"fp8", Fp8Config({8, 128}), FormatId::kFp8},
          {"fp8_bf16", Fp8Config({8, 128}), FormatId::kFp8},
          {"fp8_one", Fp8Config(nullptr), FormatId::kFp8}};
}

TEST(QuantizationTest, MeansWhatTheReferenceSaysKeptAndAsFloats) {
  for (const auto& [name, config, kept] : GoldenCases()) {
    Tensors tensors = GoldenTensors(name);
    const SourceTensor expected = tensors.at(name + ".expected");
    const absl::Status joined = Join(config, tensors);
    ASSERT_TRUE(joined.ok()) << name << ": " << joined;
    ASSERT_EQ(tensors.size(), 2) << name << ": nothing but the matrix and what it means";
    const SourceTensor& matrix = tensors.at(name + ".weight");
    EXPECT_EQ(matrix.shape, expected.shape) << name;
    EXPECT_EQ(matrix.type->kept, kept) << name;
    const std::vector<float> weights = Encoded(expected, {{FormatId::kF32}});
    EXPECT_EQ(Encoded(matrix, {{kept}, true}), weights) << name;
    EXPECT_EQ(Encoded(matrix, {{matrix.number_format()}}), weights) << name;
  }
}

Tensors TensorsOf(const TestTensors& tensors) {
  auto read = ReadSafetensors(std::shared_ptr<const RandomAccessFile>(MakeMemoryFile("made", Safetensors(tensors))));
  EXPECT_TRUE(read.ok()) << read.status();
  Tensors found;
  for (SourceTensor& tensor : *read) found[tensor.name] = tensor;
  return found;
}

template <class Number>
void Append(Number number, std::string& bytes) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

// A weight is scale x number; eight numbers are a word, plus 8, the first lowest.
TEST(QuantizationTest, PackedIntegersOfCompressedTensorsAreKept) {
  const int rows = 8, cols = 128, words = cols / 8;
  for (const int group : {32, 128}) {
    std::mt19937 random(group);
    const int groups = cols / group;
    TestTensors made = {{"m.weight_packed", {"I32", {rows, words}, ""}},
                        {"m.weight_scale", {"BF16", {rows, static_cast<uint64_t>(groups)}, ""}},
                        {"m.weight_shape", {"I64", {2}, ""}}};
    Append(int64_t{rows}, made["m.weight_shape"].bytes);
    Append(int64_t{cols}, made["m.weight_shape"].bytes);
    std::vector<float> expected;
    for (int row = 0; row < rows; ++row) {
      std::vector<float> scales;
      for (int i = 0; i < groups; ++i) {
        const float scale = BFloat16ToFloat(FloatToBFloat16(0.001f * static_cast<float>(1 + random() % 1000)));
        Append(FloatToBFloat16(scale), made["m.weight_scale"].bytes);
        scales.push_back(scale);
      }
      for (int word = 0; word < words; ++word) {
        const auto codes = static_cast<uint32_t>(random());
        Append(codes, made["m.weight_packed"].bytes);
        for (int i = 0; i < 8; ++i) {
          const int number = static_cast<int>(codes >> 4 * i & 15) - 8;
          expected.push_back(scales[(8 * word + i) / group] * static_cast<float>(number));
        }
      }
    }
    Tensors tensors = TensorsOf(made);
    const absl::Status joined = Join(CompressedConfig("pack-quantized", 4, "group", group), tensors);
    ASSERT_TRUE(joined.ok()) << joined;
    ASSERT_EQ(tensors.size(), 1);
    const SourceTensor& matrix = tensors.at("m.weight");
    EXPECT_EQ(matrix.type->kept, group == 128 ? FormatId::kQ4Z128 : FormatId::kQ4Z);
    EXPECT_EQ(Encoded(matrix, {{matrix.type->kept}, true}), expected);
    EXPECT_EQ(Encoded(matrix, {{FormatId::kF32}}), expected);
  }
}

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

// Of a whole checkpoint it may stand beside what the text part is.
TEST(QuantizationTest, ATextPartMaySayHowItIsQuantised) {
  std::string config = json{{"text_config", {{"quantization_config", AwqConfig(128)}}}}.dump();
  const absl::StatusOr<Quantization> taken = TakeQuantization(config);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->method, Quantization::Method::kAwq);
  EXPECT_EQ(config, R"({"text_config":{}})");
  config = json{{"quantization_config", AwqConfig(128)}, {"text_config", {{"quantization_config", AwqConfig(128)}}}}.dump();
  ASSERT_TRUE(TakeQuantization(config).ok()) << "as transformers saves it";
  EXPECT_EQ(config, R"({"text_config":{}})");
}

TEST(QuantizationTest, PartsOfAQuantisedMatrixAreItsNumbers) {
  Tensors tensors = GoldenTensors("awq128");
  const std::vector<float> expected = Encoded(tensors.at("awq128.expected"), {{FormatId::kF32}});
  ASSERT_TRUE(Join(AwqConfig(128), tensors).ok());
  // Rows 2 to 6, transposed.
  const TensorPart part = {.name = "part",
                           .whole = "awq128.weight",
                           .whole_shape = {8, 256},
                           .rows = 256,
                           .cols = 5,
                           .offset = 512,
                           .row_stride = 1,
                           .col_stride = 256};
  const absl::Status divided = DivideTensors({&part, 1}, tensors);
  ASSERT_TRUE(divided.ok()) << divided;
  const std::vector<float> found = Encoded(tensors.at("part"), {{FormatId::kF32}});
  for (int r = 0; r < 256; ++r) {
    for (int c = 0; c < 5; ++c) ASSERT_EQ(found[r * 5 + c], expected[(c + 2) * 256 + r]) << r << " " << c;
  }
}

TEST(QuantizationTest, TensorsThatDoNotFitAreNamed) {
  const struct {
    std::string name;
    json config;
    void (*spoil)(Tensors& tensors);
    std::vector<std::string> message;
  } cases[] = {
      {"awq128",
       AwqConfig(128),
       [](Tensors& t) { t.erase("awq128.qzeros"); },
       {"\"awq128.qweight\"", "\"awq128.qzeros\" is missing"}},
      {"awq128", AwqConfig(64), [](Tensors&) {}, {"\"awq128.scales\"", "(2, 8)", "expected (4, 8)"}},
      {"awq128", AwqConfig(48), [](Tensors&) {}, {"\"awq128.qweight\"", "groups of 48", "multiple of 32"}},
      {"gptq128",
       GptqConfig(128, "gptq"),
       [](Tensors& t) { t.at("gptq128.g_idx").offset += 4; },
       {"\"gptq128.g_idx\"", "column 127", "desc_act"}},
      {"gptq128",
       GptqConfig(128, "gptq"),
       [](Tensors& t) { t["gptq128.weight"] = t.at("gptq128.expected"); },
       {"\"gptq128.weight\"", "quantised and not quantised"}},
      {"fp8", Fp8Config({128, 128}), [](Tensors&) {}, {"\"fp8.weight_scale_inv\"", "(2, 2)", "expected (1, 2)"}},
      {"fp8", Fp8Config({8, 64}), [](Tensors&) {}, {"\"fp8.weight\"", "blocks of 64", "multiples of 128"}},
      {"fp8", Fp8Config(nullptr), [](Tensors&) {}, {"\"fp8.weight_scale_inv\"", "(2, 2)", "expected (1, 1)"}},
      {"fp8",
       Fp8Config(nullptr),
       [](Tensors& t) { t.erase("fp8.weight_scale_inv"); },
       {"\"fp8.weight\"", "\"fp8.weight_scale\" is missing"}},
      {"awq128", AwqConfig(-1), [](Tensors& t) { t.at("awq128.qweight").shape[0] = 0; }, {"\"awq128.qweight\"", "1 or more"}},
      {"fp8", Fp8Config(nullptr), [](Tensors& t) { t.at("fp8.weight").shape[0] = 0; }, {"\"fp8.weight\"", "1 or more"}},
  };
  for (const auto& [name, config, spoil, message] : cases) {
    Tensors tensors = GoldenTensors(name);
    spoil(tensors);
    const absl::Status status = Join(config, tensors);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    for (const std::string& part : message) EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

TEST(QuantizationTest, OtherMethodsAndVariantsAreRefusedByName) {
  const auto with = [](json config, const std::string& key, json value) {
    config[key] = std::move(value);
    return config;
  };
  const json compressed = CompressedConfig("float-quantized", 8, "channel", nullptr);
  const struct {
    json config;
    std::vector<std::string> message;
  } cases[] = {
      {{{"quant_method", "bitsandbytes"}}, {"bitsandbytes", "awq, compressed-tensors, fp8, gptq, mxfp4"}},
      {{{"bits", 4}}, {"known methods"}},
      {with(AwqConfig(128), "version", "gemv"), {"version", "gemv", "gemm"}},
      {with(AwqConfig(128), "bits", 8), {"bits", "8", "4"}},
      {with(AwqConfig(128), "zero_point", false), {"zero_point"}},
      {with(AwqConfig(128), "rotation", true), {"rotation"}},
      {with(GptqConfig(128, "gptq"), "desc_act", true), {"desc_act"}},
      {GptqConfig(128, "marlin"), {"checkpoint_format", "marlin", "gptq_v2"}},
      {with(Fp8Config({128, 128}), "fmt", "e5m2"), {"fmt", "e5m2", "e4m3"}},
      {Fp8Config({128}), {"weight_block_size"}},
      {with(CompressedConfig("pack-quantized", 4, "group", 32), "format", "marlin-24"),
       {"format", "marlin-24", "float-quantized"}},
      {CompressedConfig("pack-quantized", 8, "group", 32), {"num_bits", "8", "4"}},
      {CompressedConfig("float-quantized", 8, "token", nullptr), {"strategy", "token", "channel"}},
      {with(compressed, "transform_config", Transforms("input")), {"transform_config", "location", "input", "weight_output"}},
      {with(compressed, "transform_config", 3), {"transform_config", "3"}},
  };
  for (const auto& [quantization, message] : cases) {
    std::string config = json{{"quantization_config", quantization}}.dump();
    const std::string found(TakeQuantization(config).status().message());
    EXPECT_THAT(found, HasSubstr("quantization_config"));
    for (const std::string& part : message) EXPECT_THAT(found, HasSubstr(part)) << quantization;
  }
}

TEST(QuantizationTest, WhatIsTheFamilysStaysWithIt) {
  for (const char* text : {R"({"model_type":"gpt_oss","quantization_config":{"quant_method":"mxfp4"}})",
                           R"({"model_type":"olmoe"})", R"({"quantization_config":null})", "no json"}) {
    std::string config = text;
    const absl::StatusOr<Quantization> taken = TakeQuantization(config);
    ASSERT_TRUE(taken.ok()) << taken.status();
    EXPECT_EQ(taken->method, Quantization::Method::kNone);
    EXPECT_EQ(config, text);
  }
}

std::string RandomBytes(size_t count, std::mt19937& random) {
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// A checkpoint of which the matrices of the experts are quantised by AWQ: any codes.
TinyCheckpoint AwqCheckpoint() {
  constexpr uint64_t kGroup = 64;
  json config = TinyConfig("qwen3_moe");
  config["hidden_size"] = 128;
  config["moe_intermediate_size"] = 64;
  config["quantization_config"] = AwqConfig(kGroup);
  json plain = config;
  plain.erase("quantization_config");
  TinyCheckpoint tiny = FillTinyCheckpoint(plain);
  tiny.config = config;
  std::mt19937 random(5);
  const TestTensors all = tiny.tensors;
  for (const auto& [name, tensor] : all) {
    if (name.find(".experts.") == std::string::npos) continue;
    const uint64_t rows = tensor.shape[0], cols = tensor.shape[1];
    const std::string base = name.substr(0, name.rfind("weight"));
    tiny.tensors[base + "qweight"] = {"I32", {cols, rows / 8}, RandomBytes(cols * rows / 2, random)};
    tiny.tensors[base + "qzeros"] = {"I32", {cols / kGroup, rows / 8}, RandomBytes(cols / kGroup * rows / 2, random)};
    tiny.tensors[base + "scales"] = RandomTensor("F16", {cols / kGroup, rows}, random());
    tiny.tensors.erase(name);
  }
  return tiny;
}

TEST(QuantizationTest, ExpertsAreKeptOrRequantised) {
  TemporaryFolder folder;
  AwqCheckpoint().Write(folder / "in");
  const std::string out = folder / "out.store";
  const CommandResult packed = RunPack({folder / "in", out, "--expert-formats", "keep,q8"});
  ASSERT_EQ(packed.exit_code, 0) << packed.err;
  EXPECT_EQ(RunPack({"verify", out}).exit_code, 0);
  const StoreDescription description = StoreReader::Open(out).value()->description();
  EXPECT_EQ(PrecisionName(description.precisions[0]), "q4z");
  EXPECT_EQ(PrecisionName(description.precisions[1]), "q8");
}

// What is said of none of the formats.
TEST(QuantizationTest, IsKeptByDefault) {
  TemporaryFolder folder;
  AwqCheckpoint().Write(folder / "quantised");
  MakeTinyCheckpoint("qwen3_moe").Write(folder / "plain");
  const struct {
    std::string name, experts;
    FormatId trunk;
  } cases[] = {{"quantised", "q4z", FormatId::kBF16}, {"plain", "q8", FormatId::kQ8}};
  for (const auto& [name, experts, trunk] : cases) {
    const std::string out = folder / (name + ".store");
    const CommandResult packed = RunPack({folder / name, out});
    ASSERT_EQ(packed.exit_code, 0) << packed.err;
    const auto store = StoreReader::Open(out).value();
    EXPECT_EQ(PrecisionName(store->description().precisions[0]), experts);
    EXPECT_EQ(store->FindTensor("embed").value()->format, trunk);
  }
}

// A bias beside every matrix of an expert, as GPTQ's packers write them.
TEST(QuantizationTest, BiasesOfZerosAreNone) {
  TemporaryFolder folder;
  TinyCheckpoint tiny = AwqCheckpoint();
  tiny.Write(folder / "without");
  const TestTensors all = tiny.tensors;
  for (const auto& [name, tensor] : all) {
    if (!name.ends_with(".scales")) continue;
    const uint64_t rows = tensor.shape[1];
    tiny.tensors[name.substr(0, name.rfind("scales")) + "bias"] = {"F16", {rows}, std::string(2 * rows, '\0')};
  }
  tiny.Write(folder / "with");
  for (const std::string name : {"without", "with"}) {
    const CommandResult packed = RunPack({folder / name, folder / (name + ".store")});
    ASSERT_EQ(packed.exit_code, 0) << packed.err;
  }
  EXPECT_TRUE(FileContents(folder / "with.store") == FileContents(folder / "without.store"));

  const std::string bias = "model.layers.1.mlp.experts.3.up_proj.bias";
  tiny.tensors.at(bias).bytes[4] = 1;
  tiny.Write(folder / "other");
  EXPECT_THAT(RunPack({folder / "other", folder / "other.store"}).err, AllOf(HasSubstr("unknown tensor"), HasSubstr(bias)));
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
