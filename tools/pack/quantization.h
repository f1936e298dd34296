// Checkpoints whose weights were quantised before: AWQ, GPTQ, FP8, compressed-tensors and ModelOpt, each a matrix apart. MXFP4 is
// gpt-oss's own (tensor_parts.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "tools/pack/source_tensor.h"

namespace moed {

// What config.json's quantization_config says.
struct Quantization {
  enum class Method { kNone, kAwq, kGptq, kFp8, kPacked, kNvfp4, kModelOpt };
  Method method = Method::kNone;
  uint64_t group = 0;  // columns that share a scale; 0: all of a row
  int zero_term = 0;   // what a zero is more than what is stored
  // FP8: of the weights that share a scale; 0: all of a matrix.
  uint64_t block_rows = 0;
  uint64_t block_cols = 0;
  std::string_view scale = "_scale";  // behind the matrix's name
};

std::vector<std::string> QuantizationMethods();  // quant_method, sorted; "mxfp4" is a family's

// What ModelOpt's hf_quant_config.json at `path` says becomes the quantization_config of a config.json that has none.
absl::Status AddModelOptConfig(std::string_view path, std::string_view hf_quant_config, std::string& config_json);

// Takes quantization_config out of the text where its method is one of these, so that the family reads the rest; leaves "mxfp4"
// to the family. INVALID_ARGUMENT naming the methods, or key, value and what is allowed.
absl::StatusOr<Quantization> TakeQuantization(std::string& config_json);

// Tensors of codes, zeros and scales become the matrices that they stand for, under the name that the matrix has when it is not
// quantised. What is not quantised stays. INVALID_ARGUMENT naming file, tensor, expected and found.
absl::Status JoinQuantized(const Quantization& quantization, absl::flat_hash_map<std::string, SourceTensor>& tensors);

}  // namespace moed
