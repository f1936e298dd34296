// Random checkpoints of a few kilobytes for every family, written as safetensors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/temporary_folder.h"

namespace moed {

std::string FileContents(const std::string& path);
void WriteContents(const std::string& path, std::string_view contents);

struct TestTensor {
  std::string dtype;  // "BF16"
  std::vector<uint64_t> shape;
  std::string bytes;
};
using TestTensors = std::map<std::string, TestTensor>;

// `count` normal numbers in the encoding of `dtype`.
TestTensor RandomTensor(const std::string& dtype, std::vector<uint64_t> shape, uint64_t seed);
// The file: length, header, data.
std::string Safetensors(const TestTensors& tensors);

// A checkpoint before it is written; tests change it as they like.
struct TinyCheckpoint {
  nlohmann::json config;
  nlohmann::json generation_config;  // null: no such file
  std::string tokenizer;
  TestTensors tensors;

  void Write(const std::string& folder) const;  // model.safetensors
  // Tensor i goes to shard i modulo `shards`; returns the index's JSON, which is written too.
  nlohmann::json WriteSharded(const std::string& folder, int shards) const;
};

// config.json of a tiny model of the family, with awkward sizes. CHECK-fails for a family without one: add it here with the
// family.
nlohmann::json TinyConfig(std::string_view model_type);
// All tensors that the family wants for this config, in `dtype`.
TinyCheckpoint FillTinyCheckpoint(const nlohmann::json& config, const std::string& dtype = "BF16");
TinyCheckpoint MakeTinyCheckpoint(std::string_view model_type);

// The project's own trained model.
std::string DemoCheckpoint();

}  // namespace moed
