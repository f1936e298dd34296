// A Hugging Face checkpoint folder: its texts, and its tensors by name. Weights stay on disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "tools/pack/safetensors.h"

namespace moed {

class Checkpoint {
 public:
  // Reads the texts and the headers of every weight file: model.safetensors, or the shards that model.safetensors.index.json
  // names.
  static absl::StatusOr<Checkpoint> Open(const std::string& folder);

  const std::string& folder() const { return folder_; }
  const std::string& config() const { return config_; }
  const std::string& generation_config() const { return generation_config_; }  // "" where there is none
  const std::string& tokenizer() const { return tokenizer_; }
  size_t tensor_count() const { return tensors_.size(); }
  uint64_t weight_bytes() const { return weight_bytes_; }
  // Name, size and time of change of every weight file: the same as long as nobody touches them.
  const std::string& fingerprint() const { return fingerprint_; }

  // Null when there is none.
  const SourceTensor* Find(std::string_view name) const;
  std::vector<std::string_view> Names() const;  // sorted

 private:
  absl::Status OpenWeights();
  absl::Status OpenShards(std::string_view index_json);
  absl::Status AddFile(const std::string& file_name);
  absl::Status DivideTensors();
  std::string PathOf(std::string_view file_name) const;

  std::string folder_;
  std::string config_;
  std::string generation_config_;
  std::string tokenizer_;
  std::string fingerprint_;
  uint64_t weight_bytes_ = 0;
  absl::flat_hash_map<std::string, SourceTensor> tensors_;
};

}  // namespace moed
