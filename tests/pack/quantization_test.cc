// Weights that the checkpoint has quantised: AWQ, GPTQ and FP8, kept and read as floats.
#include "tools/pack/quantization.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <utility>

#include "core/base/status.h"
#include "core/io/file.h"
#include "core/quant/half.h"
#include "core/store/store.h"
#include "tests/file_text.h"
#include "tests/pack/command.h"
#include "tests/pack/quantized.h"
#include "tests/paths.h"
#include "tools/pack/tensor_parts.h"

namespace moed {
namespace quantization_test {

constexpr char kGolden[] = "tests/pack/data/quantized.safetensors.xz";  // tools/parity/make_quantized.py

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
  config =
      json{{"quantization_config", AwqConfig(128)}, {"text_config", {{"quantization_config", Fp8Config({128, 128})}}}}.dump();
  ASSERT_TRUE(TakeQuantization(config).ok()) << "of what it was made of";
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
      {{{"quant_method", "bitsandbytes"}}, {"bitsandbytes", "awq, compressed-tensors, fp8, gptq, modelopt, mxfp4"}},
      {{{"bits", 4}}, {"known methods"}},
      {with(AwqConfig(128), "version", "gemv"), {"version", "gemv", "gemm"}},
      {with(AwqConfig(128), "bits", 8), {"bits", "8", "4"}},
      {with(AwqConfig(128), "data_type", "fp"), {"data_type", "fp", "int"}},
      {{{"bits", 4}, {"group_size", 64}, {"mode", "affine"}}, {"MLX"}},
      {with(AwqConfig(128), "rotation", true), {"rotation"}},
      {with(GptqConfig(128, "gptq"), "desc_act", true), {"desc_act"}},
      {GptqConfig(128, "marlin"), {"checkpoint_format", "marlin", "gptq_v2"}},
      {with(Fp8Config({128, 128}), "fmt", "e5m2"), {"fmt", "e5m2", "e4m3"}},
      {Fp8Config({128}), {"weight_block_size"}},
      {with(Fp8Config({128, 128}), "weight_per_tensor", true), {"weight_per_tensor", "true", "false"}},
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

TEST(QuantizationTest, WhatQuantizersSayOfTheirWayIsKnown) {
  json awq = AwqConfig(128), gptq = GptqConfig(128, "gptq"), packed = CompressedConfig("pack-quantized", 4, "group", 32);
  awq.update({{"checkpoint_format", "gemm"},
              {"dynamic", nullptr},
              {"lm_head", false},
              {"meta", {{"quantizer", "gptqmodel"}}},
              {"zero_point", false},
              {"provider", "auto-round"},
              {"data_type", "int"}});
  gptq.update({{"autoround_version", "0.13.0"},
               {"data_type", "int"},
               {"enable_quanted_input", false},
               {"iters", 0},
               {"provider", "auto-round"}});
  for (const std::string order : {"static", "weight"}) {
    packed["config_groups"]["group_0"]["weights"]["actorder"] = order;
    packed["provider"] = "auto-round";
    for (const json& said : {awq, gptq, packed}) {
      std::string config = json{{"quantization_config", said}}.dump();
      const absl::Status taken = TakeQuantization(config).status();
      EXPECT_TRUE(taken.ok()) << taken;
    }
  }
  packed["config_groups"]["group_0"]["weights"]["actorder"] = "group";
  std::string config = json{{"quantization_config", packed}}.dump();
  EXPECT_THAT(std::string(TakeQuantization(config).status().message()), HasSubstr("actorder"));
}

TEST(QuantizationTest, Fp8AsQwen35SaysIt) {
  json said = Fp8Config({128, 128});
  said.erase("fmt");
  said.update({{"weight_per_tensor", false}, {"act_per_tensor", false}, {"modules_to_not_convert", {"lm_head"}}});
  std::string config = json{{"quantization_config", said}}.dump();
  const absl::StatusOr<Quantization> taken = TakeQuantization(config);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->method, Quantization::Method::kFp8);
  EXPECT_EQ(taken->block_rows, 128u);
}

TEST(QuantizationTest, PythonsInfinityHidesNothing) {
  const std::string limit = R"("time_step_limit":[0.0,Infinity])", read = R"({"time_step_limit":[0.0,{"__float__":"Infinity"}]})";
  std::string config = StrCat("{", limit, R"(,"quantization_config":)", Fp8Config({128, 128}).dump(), "}");
  const absl::StatusOr<Quantization> taken = TakeQuantization(config);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->method, Quantization::Method::kFp8);
  EXPECT_EQ(config, read);
  config = StrCat("{", limit, "}");
  ASSERT_TRUE(AddModelOptConfig("f", R"({"quantization":{"quant_algo":"NVFP4"}})", config).ok());
  EXPECT_THAT(config, HasSubstr("NVFP4"));
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

}  // namespace quantization_test
}  // namespace moed
