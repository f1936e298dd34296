// NVFP4 of safetensors: ModelOpt's and compressed-tensors' spelling, kept and read as floats.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "core/store/store.h"
#include "tests/file_text.h"
#include "tests/pack/command.h"
#include "tests/pack/quantized.h"
#include "tests/paths.h"
#include "tools/pack/tensor_parts.h"

namespace moed {
namespace nvfp4_quantization_test {

using namespace quantization_test;

json ModelOptConfig(const std::string& algorithm = "NVFP4") {
  const json numbers = {{"dynamic", false}, {"num_bits", 4}, {"type", "float"}, {"group_size", 16}};
  return {{"quant_method", "modelopt"},
          {"quant_algo", algorithm},
          {"kv_cache_scheme", {{"dynamic", false}, {"num_bits", 8}, {"type", "float"}}},
          {"producer", {{"name", "modelopt"}, {"version", "0.29.0"}}},
          {"ignore", {"lm_head", "model.layers.0.mlp.gate"}},
          {"config_groups",
           {{"group_0", {{"input_activations", numbers}, {"weights", numbers}, {"targets", json::array({"Linear"})}}}}}};
}

json CompressedNvfp4Config() {
  json config = CompressedConfig("nvfp4-pack-quantized", 4, "tensor_group", 16);
  json& group = config["config_groups"]["group_0"];
  group["format"] = "nvfp4-pack-quantized";
  group["weights"].update({{"type", "float"}, {"scale_dtype", "torch.float8_e4m3fn"}, {"zp_dtype", nullptr}});
  return config;
}

// 4 bits of exponent, 3 of mantissa.
float E4m3(int code) { return static_cast<float>(code < 8 ? std::ldexp(code, -9) : std::ldexp(8 + code % 8, code / 8 - 10)); }

// Matrices one below the other and what they mean, the number that multiplies being 1.
struct Matrix {
  std::string codes, scales;
  std::vector<float> weights;
};

Matrix RandomMatrix(uint64_t rows, uint64_t cols, uint32_t seed) {
  constexpr float kNumbers[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  std::mt19937 random(seed);
  Matrix matrix{RandomBytes(rows * cols / 2, random), RandomBytes(rows * cols / 16, random), {}};
  for (char& scale : matrix.scales) scale = static_cast<char>(static_cast<uint8_t>(scale) % 0x7f);
  for (uint64_t i = 0; i < rows * cols; ++i) {
    const int code = static_cast<uint8_t>(matrix.codes[i / 2]) >> 4 * (i % 2) & 15;
    const float number = code < 8 ? kNumbers[code] : 0 - kNumbers[code - 8];  // the code of -0 is 0
    matrix.weights.push_back(number * E4m3(matrix.scales[i / 16]));
  }
  return matrix;
}

TestTensor Float(float number, std::vector<uint64_t> shape = {}) {
  TestTensor tensor{"F32", std::move(shape), ""};
  Append(number, tensor.bytes);
  return tensor;
}

void AddModelOpt(const std::string& base, const Matrix& matrix, uint64_t rows, uint64_t cols, float number,
                 TestTensors& tensors) {
  tensors[base + ".weight"] = {"U8", {rows, cols / 2}, matrix.codes};
  tensors[base + ".weight_scale"] = {"F8_E4M3", {rows, cols / 16}, matrix.scales};
  tensors[base + ".weight_scale_2"] = Float(number);
  tensors[base + ".input_scale"] = Float(0.25f);
}

void AddCompressed(const std::string& base, const Matrix& matrix, uint64_t rows, uint64_t cols, float number,
                   TestTensors& tensors) {
  tensors[base + ".weight_packed"] = {"U8", {rows, cols / 2}, matrix.codes};
  tensors[base + ".weight_scale"] = {"F8_E4M3", {rows, cols / 16}, matrix.scales};
  tensors[base + ".weight_global_scale"] = Float(1 / number, {1});
  tensors[base + ".input_global_scale"] = Float(300, {1});
}

TEST(Nvfp4Test, MeansWhatModelOptAndCompressedTensorsSay) {
  constexpr char kGolden[] = "tests/pack/data/nvfp4.safetensors.xz";  // tools/parity/make_nvfp4.py
  const auto read =
      ReadSafetensors(std::shared_ptr<const RandomAccessFile>(MakeMemoryFile(kGolden, ReadFileText(SourcePath(kGolden)))));
  ASSERT_TRUE(read.ok()) << read.status();
  for (const std::string name : {"modelopt", "modelopt_large", "compressed", "compressed_uneven"}) {
    Tensors tensors;
    for (const SourceTensor& tensor : *read) {
      if (tensor.name.starts_with(name + ".")) tensors[tensor.name] = tensor;
    }
    const SourceTensor expected = tensors.at(name + ".expected");
    const absl::Status joined = Join(name.starts_with("modelopt") ? ModelOptConfig() : CompressedNvfp4Config(), tensors);
    ASSERT_TRUE(joined.ok()) << name << ": " << joined;
    ASSERT_EQ(tensors.size(), 2) << name << ": nothing but the matrix and what it means";
    const SourceTensor& matrix = tensors.at(name + ".weight");
    EXPECT_EQ(matrix.shape, expected.shape) << name;
    EXPECT_EQ(matrix.type->kept, FormatId::kNvfp4) << name;
    const std::vector<float> weights = Encoded(expected, {{FormatId::kF32}});
    EXPECT_EQ(Encoded(matrix, {{FormatId::kNvfp4}, true}), weights) << name;
    EXPECT_EQ(Encoded(matrix, {{FormatId::kF32}}), weights) << name;
  }
}

// A number of e4m3 over that of the tensor, which the inverse as one float32 would not give.
TEST(Nvfp4Test, QuotientsAreExact) {
  constexpr uint64_t kMatrices = 4096, kCols = 64;
  std::mt19937 random(6);
  std::uniform_real_distribution<float> exponents(-20, 20);
  Matrix matrix = RandomMatrix(kMatrices, kCols, 7);
  matrix.codes.assign(matrix.codes.size(), '\x22');  // of 1
  TestTensor numbers{"F32", {kMatrices}, ""};
  std::vector<float> expected;
  int of_inverse = 0;
  for (uint64_t i = 0; i < kMatrices; ++i) {
    const float number = std::exp2(exponents(random));
    Append(number, numbers.bytes);
    for (uint64_t column = 0; column < kCols; ++column) {
      const float scale = E4m3(matrix.scales[i * kCols / 16 + column / 16]);
      expected.push_back(scale / number);
      if (scale * (1 / number) != expected.back()) ++of_inverse;
    }
  }
  EXPECT_GT(of_inverse, 0);
  Tensors tensors = TensorsOf({{"m.weight_packed", {"U8", {kMatrices, 1, kCols / 2}, matrix.codes}},
                               {"m.weight_scale", {"F8_E4M3", {kMatrices, 1, kCols / 16}, matrix.scales}},
                               {"m.weight_global_scale", numbers}});
  const absl::Status joined = Join(CompressedNvfp4Config(), tensors);
  ASSERT_TRUE(joined.ok()) << joined;
  SourceTensor all = tensors.at("m.weight");
  all.shape = {kMatrices, kCols};
  EXPECT_EQ(Encoded(all, {{FormatId::kF32}}), expected);
}

// A checkpoint of which the matrices of the experts are of NVFP4, with a number each that is a power of two.
struct Checkpoints {
  TinyCheckpoint plain, modelopt, compressed, said_in_a_file;
};

Checkpoints MakeCheckpoints() {
  json config = TinyConfig("qwen3_moe");
  config["hidden_size"] = 128;
  config["moe_intermediate_size"] = 64;
  const TinyCheckpoint tiny = FillTinyCheckpoint(config, "F32");
  Checkpoints made{tiny, tiny, tiny, tiny};
  made.modelopt.config["quantization_config"] = ModelOptConfig();
  made.compressed.config["quantization_config"] = CompressedNvfp4Config();
  uint32_t seed = 0;
  for (const auto& [name, tensor] : tiny.tensors) {
    if (name.find(".experts.") == std::string::npos) continue;
    const uint64_t rows = tensor.shape[0], cols = tensor.shape[1];
    const std::string base = name.substr(0, name.rfind('.'));
    const Matrix matrix = RandomMatrix(rows, cols, seed);
    const float number = std::ldexp(1.0f, -8 - static_cast<int>(seed++ % 4));
    std::string& weights = made.plain.tensors[name].bytes;
    weights.clear();
    for (const float weight : matrix.weights) Append(weight * number, weights);
    for (TinyCheckpoint* one : {&made.modelopt, &made.compressed, &made.said_in_a_file}) one->tensors.erase(name);
    AddModelOpt(base, matrix, rows, cols, number, made.modelopt.tensors);
    AddModelOpt(base, matrix, rows, cols, number, made.said_in_a_file.tensors);
    AddCompressed(base, matrix, rows, cols, number, made.compressed.tensors);
  }
  made.modelopt.tensors["model.layers.0.self_attn.k_proj.k_scale"] = Float(1);
  return made;
}

TEST(Nvfp4Test, ExpertsAreKeptOrRequantised) {
  TemporaryFolder folder;
  const Checkpoints made = MakeCheckpoints();
  made.plain.Write(folder / "plain");
  made.modelopt.Write(folder / "modelopt");
  made.compressed.Write(folder / "compressed");
  made.said_in_a_file.Write(folder / "said");
  WriteContents(
      folder / "said/hf_quant_config.json",
      json{{"producer", {{"name", "modelopt"}, {"version", "0.19.0"}}},
           {"quantization",
            {{"quant_algo", "NVFP4"}, {"kv_cache_quant_algo", "FP8"}, {"group_size", 16}, {"exclude_modules", {"lm_head"}}}}}
          .dump());
  for (const std::string formats : {"keep", "f32", "q8,q2p"}) {
    SCOPED_TRACE(formats);
    std::vector<std::string> stores;
    for (const std::string name : {"modelopt", "compressed", "said", "plain"}) {
      const std::string out = folder / (name + "." + formats);
      const CommandResult packed = RunPack({folder / name, out, "--expert-formats", formats, "--trunk-format", "q8"});
      ASSERT_EQ(packed.exit_code, 0) << packed.err;
      stores.push_back(FileContents(out));
    }
    EXPECT_TRUE(stores[1] == stores[0]);
    EXPECT_TRUE(stores[2] == stores[0]);
    EXPECT_EQ(stores[3] == stores[0], formats != "keep") << "what was requantised is made of the same numbers";
  }
  const std::string kept = folder / "modelopt.keep";
  EXPECT_EQ(RunPack({"verify", kept}).exit_code, 0);
  EXPECT_EQ(PrecisionName(StoreReader::Open(kept).value()->description().precisions[0]), "nvfp4");
}

// A layer's experts in one tensor: as the family wants them, gate above up.
TEST(Nvfp4Test, ExpertsInOneTensorHaveANumberEachOrOne) {
  constexpr uint64_t kExperts = 3, kRows = 4, kCols = 128;
  const Matrix matrix = RandomMatrix(kExperts * kRows, kCols, 1);
  for (const uint64_t numbers : {kExperts, uint64_t{1}}) {
    TestTensor each{"F32", {numbers, 1}, ""};
    for (uint64_t i = 0; i < numbers; ++i) Append(0.25f * static_cast<float>(1 + i), each.bytes);
    Tensors tensors =
        TensorsOf({{"x.experts.gate_up_proj", {"U8", {kExperts, kRows, kCols / 2}, matrix.codes}},
                   {"x.experts.gate_up_proj_weight_scale", {"F8_E4M3", {kExperts, kRows, kCols / 16}, matrix.scales}},
                   {"x.experts.gate_up_proj_weight_scale_2", each},
                   {"x.experts.gate_up_proj_input_scale", each}});
    const absl::Status joined = Join(ModelOptConfig(), tensors);
    ASSERT_TRUE(joined.ok()) << joined;
    const TensorPart part = {.name = "up",
                             .whole = "x.experts.gate_up_proj",
                             .whole_shape = {kExperts, kRows, kCols},
                             .rows = 2,
                             .cols = kCols,
                             .offset = (2 * kRows + 2) * kCols,
                             .row_stride = kCols};
    const absl::Status divided = DivideTensors({&part, 1}, tensors);
    ASSERT_TRUE(divided.ok()) << divided;
    ASSERT_EQ(tensors.size(), 1);
    std::vector<float> expected(matrix.weights.begin() + (2 * kRows + 2) * kCols, matrix.weights.end());
    expected.resize(2 * kCols);
    for (float& weight : expected) weight *= numbers == 1 ? 0.25f : 0.75f;
    EXPECT_EQ(Encoded(tensors.at("up"), {{FormatId::kNvfp4}, true}), expected);
  }
}

TEST(Nvfp4Test, LayersOfFp8MayStandBesideThem) {
  json config = ModelOptConfig("MIXED_PRECISION");
  config.erase("config_groups");
  config["quantized_layers"] = {{"m", {{"quant_algo", "NVFP4"}, {"group_size", 16}}}, {"f", {{"quant_algo", "FP8"}}}};
  TestTensors made = {{"f.weight", {"F8_E4M3", {1, 128}, std::string(128, '\x38')}}, {"f.weight_scale", Float(0.5f)}};
  const Matrix matrix = RandomMatrix(2, 64, 3);
  AddModelOpt("m", matrix, 2, 64, 1, made);
  Tensors tensors = TensorsOf(made);
  const absl::Status joined = Join(config, tensors);
  ASSERT_TRUE(joined.ok()) << joined;
  EXPECT_EQ(Encoded(tensors.at("m.weight"), {{FormatId::kNvfp4}, true}), matrix.weights);
  EXPECT_EQ(Encoded(tensors.at("f.weight"), {{FormatId::kFp8}, true}), std::vector<float>(128, 0.5f));
}

TEST(Nvfp4Test, TensorsThatDoNotFitAreNamed) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const struct {
    void (*spoil)(TestTensors& t);
    std::vector<std::string> message;
  } cases[] = {
      {[](TestTensors& t) { t.erase("m.weight_scale"); }, {"\"m.weight\"", "\"m.weight_scale\" is missing"}},
      {[](TestTensors& t) { t.erase("m.weight_scale_2"); }, {"\"m.weight\"", "\"m.weight_scale_2\" is missing"}},
      {[](TestTensors& t) {
         t["m.weight_scale"].shape = {4, 4};
       },
       {"\"m.weight_scale\"", "(4, 4)", "expected (2, 8)"}},
      {[](TestTensors& t) { t["m.weight_scale"].dtype = "U8"; }, {"\"m.weight_scale\"", "is U8", "expected F8_E4M3"}},
      {[](TestTensors& t) {
         t["m.weight"].shape = {2, 2, 2, 16};
       },
       {"\"m.weight\"", "(2, 2, 2, 16)"}},
      {[](TestTensors& t) {
         t["m.weight"] = {"U8", {2, 24}, std::string(48, '\0')};
         t["m.weight_scale"] = {"F8_E4M3", {2, 3}, std::string(6, '\0')};
       },
       {"\"m.weight\"", "48 columns", "multiple of 64"}},
      {[](TestTensors& t) {
         t["m.weight_scale_2"] = {"F32", {2}, std::string(8, '\1')};
       },
       {"\"m.weight_scale_2\"", "has 2 numbers, expected 1"}},
      {[](TestTensors& t) {
         t["m.weight_scale_2"] = {"I32", {}, std::string(4, '\1')};
       },
       {"\"m.weight_scale_2\"", "is I32, expected numbers"}},
      {[](TestTensors& t) { t["m.weight_scale_2"] = Float(0); }, {"\"m.weight_scale_2\"", "is 0, expected a number from"}},
      {[](TestTensors& t) { t["m.weight_scale_2"] = Float(-1); }, {"\"m.weight_scale_2\"", "is -1, expected a number from"}},
      {[](TestTensors& t) { t["m.weight_scale_2"] = Float(kInfinity); }, {"\"m.weight_scale_2\"", "is inf, expected"}},
      {[](TestTensors& t) { t["m.weight_scale_2"] = Float(std::nanf("")); }, {"\"m.weight_scale_2\"", "is nan, expected"}},
  };
  for (const auto& [spoil, message] : cases) {
    TestTensors made;
    AddModelOpt("m", RandomMatrix(2, 128, 5), 2, 128, 0.5f, made);
    spoil(made);
    Tensors tensors = TensorsOf(made);
    const absl::Status status = Join(ModelOptConfig(), tensors);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << message[0];
    for (const std::string& part : message) EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

// Negative numbers of e4m3 and its NaN are no scales; they are found when the rows are read.
TEST(Nvfp4Test, ScalesThatAreNoneAreNamed) {
  for (const int byte : {0x7f, 0x80, 0xb8, 0xff}) {
    Checkpoints made = MakeCheckpoints();
    const std::string base = "model.layers.1.mlp.experts.3.up_proj";
    made.modelopt.tensors.at(base + ".weight_scale").bytes[8 + 5] = static_cast<char>(byte);
    TemporaryFolder folder;
    made.modelopt.Write(folder / "in");
    for (const std::string formats : {"keep", "q8"}) {
      EXPECT_THAT(RunPack({folder / "in", folder / "out", "--expert-formats", formats}).err,
                  AllOf(HasSubstr("\"" + base + ".weight\""), HasSubstr("row 1 from column 80"),
                        HasSubstr("byte " + std::to_string(byte)), HasSubstr("0 to 126")));
    }
  }
}

TEST(Nvfp4Test, OtherVariantsAreRefusedByName) {
  const auto with = [](json config, const std::string& key, json value) {
    config[key] = std::move(value);
    return config;
  };
  json groups_of_32 = CompressedNvfp4Config();
  groups_of_32["config_groups"]["group_0"]["weights"]["group_size"] = 32;
  const json layers = {{"m", {{"quant_algo", "MXFP8"}}}};
  const struct {
    json config;
    std::vector<std::string> message;
  } cases[] = {
      {ModelOptConfig("NVFP4_AWQ"), {"quant_algo", "NVFP4_AWQ", "W4A16_NVFP4"}},
      {with(ModelOptConfig(), "group_size", 32), {"group_size", "32", "16"}},
      {with(ModelOptConfig(), "pre_quant_scale", true), {"pre_quant_scale"}},
      {with(ModelOptConfig("MIXED_PRECISION"), "quantized_layers", layers), {"quantized_layers, m", "MXFP8", "\"FP8\""}},
      {with(ModelOptConfig("MIXED_PRECISION"), "quantized_layers", 3), {"quantized_layers", "3", "an object"}},
      {groups_of_32, {"group_size", "32", "16"}},
  };
  for (const auto& [quantization, message] : cases) {
    std::string config = json{{"quantization_config", quantization}}.dump();
    const std::string found(TakeQuantization(config).status().message());
    EXPECT_THAT(found, HasSubstr("quantization_config"));
    for (const std::string& part : message) EXPECT_THAT(found, HasSubstr(part)) << quantization;
  }
}

TEST(Nvfp4Test, AFileBesideTheConfigMaySayHow) {
  std::string config = R"({"hidden_size":1})";
  ASSERT_TRUE(AddModelOptConfig("f", R"({"quantization":{"quant_algo":"NVFP4"}})", config).ok());
  const absl::StatusOr<Quantization> taken = TakeQuantization(config);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->method, Quantization::Method::kModelOpt);
  EXPECT_EQ(config, R"({"hidden_size":1})");
  std::string said = json{{"quantization_config", AwqConfig(128)}}.dump();
  const std::string before = said;
  ASSERT_TRUE(AddModelOptConfig("f", R"({"quantization":{"quant_algo":"NVFP4"}})", said).ok());
  EXPECT_EQ(said, before) << "config.json says it itself";
  for (const char* broken : {"[]", "{}", "no json", R"({"quantization":1})"}) {
    EXPECT_THAT(std::string(AddModelOptConfig("f", broken, config).message()), HasSubstr("f: ")) << broken;
  }
}

}  // namespace nvfp4_quantization_test
}  // namespace moed
