// config.json of quantised checkpoints, and what their tensors are found to mean.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/base/executor.h"
#include "core/io/file.h"
#include "nlohmann/json.hpp"
#include "tests/pack/encoded_matrix.h"
#include "tests/pack/tiny_checkpoint.h"
#include "tools/pack/quantization.h"
#include "tools/pack/safetensors.h"

namespace moed {
namespace quantization_test {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Tensors = absl::flat_hash_map<std::string, SourceTensor>;

inline json AwqConfig(int group) {
  return {{"quant_method", "awq"}, {"bits", 4}, {"group_size", group}, {"zero_point", true}, {"version", "gemm"}};
}

inline json GptqConfig(int group, const std::string& format) {
  return {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", group}, {"desc_act", false}, {"checkpoint_format", format}};
}

inline json Fp8Config(json block) {
  return {{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"activation_scheme", "dynamic"}, {"weight_block_size", std::move(block)}};
}

// As Kimi-K2-Thinking and GLM-4.5-FP8 say it.
inline json CompressedConfig(const std::string& format, int bits, const std::string& strategy, json group) {
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
inline json Transforms(const std::string& location) {
  const json apply = {{"ignore", json::array()}, {"inverse", false}, {"location", location}, {"targets", {"re:.*o_proj$"}}};
  return {{"config_groups", {{"R1", {{"apply", {apply}}, {"requires_grad", false}, {"type", "hadamard"}}}}}};
}

inline absl::Status Join(const json& quantization, Tensors& tensors) {
  std::string config = json{{"quantization_config", quantization}}.dump();
  const absl::StatusOr<Quantization> taken = TakeQuantization(config);
  EXPECT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(config, "{}");
  return JoinQuantized(*taken, tensors);
}

// [row * cols + column] of what `target` makes of it.
inline std::vector<float> Encoded(const SourceTensor& source, const MatrixTarget& target) {
  const int rows = static_cast<int>(source.shape[0]), cols = static_cast<int>(source.shape[1]);
  std::vector<std::byte> packed;
  InlineExecutor executor;
  const absl::Status status = EncodeMatrix(executor, source, {&target, 1}, [&](size_t, std::span<const std::byte> bytes) {
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

inline Tensors TensorsOf(const TestTensors& tensors) {
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

inline std::string RandomBytes(size_t count, std::mt19937& random) {
  std::string bytes(count, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

}  // namespace quantization_test
}  // namespace moed
