// A checkpoint: what its model is, its tokenizer, and its tensors by name. A Hugging Face folder, or a GGUF file with all its
// parts. Weights stay on disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "core/model/family.h"
#include "core/model/spec.h"
#include "core/tokenizer/chat_settings.h"
#include "tools/pack/source_tensor.h"

namespace moed {

struct GgufArchitecture;

class Checkpoint {
 public:
  // A folder: reads the texts and the headers of every weight file, model.safetensors or the shards that
  // model.safetensors.index.json names. A file: GGUF, any part of a split one. INVALID_ARGUMENT for a model that no family runs.
  static absl::StatusOr<Checkpoint> Open(const std::string& path);

  const std::string& path() const { return path_; }
  bool is_gguf() const { return architecture_ != nullptr; }
  bool is_quantised() const;                                                                // a matrix of it is
  std::string_view described_by() const { return is_gguf() ? "metadata" : "config.json"; }  // for messages
  const Family& family() const { return *family_; }
  const ModelSpec& spec() const { return spec_; }
  // Of tokenizer.json, for a GGUF of one that means the same; without it of vocab.txt and emoji.json
  // (GPTSAN-japanese), of spiece.model (T5), or of tiktoken.model (Kimi K2).
  absl::StatusOr<std::string> CompiledTokenizer() const;
  const ChatSettings& chat() const { return chat_; }
  // Instead of its own; "" is none.
  void UseChatTemplate(std::string chat_template) { chat_.chat_template = std::move(chat_template); }
  size_t tensor_count() const { return tensors_.size(); }  // experts of one GGUF tensor count one by one
  uint64_t weight_bytes() const { return weight_bytes_; }
  // Name, size, time of change and samples of every weight file: the same as long as nobody touches them.
  const std::string& fingerprint() const { return fingerprint_; }

  // Null when there is none.
  const SourceTensor* Find(std::string_view name) const;
  std::vector<std::string_view> Names() const;  // sorted
  // What this checkpoint calls a tensor of its family, there or not.
  std::string NameOf(const TrunkTensor& tensor) const;
  std::string NameOfExpert(LayerId layer, int expert, ExpertPart part) const;
  std::vector<uint64_t> ShapeOf(const TrunkTensor& tensor) const;
  Spelling SpellingOf(const TrunkTensor& tensor) const { return is_gguf() ? Spelling::kPlain : tensor.spelling; }
  bool IsUnused(std::string_view name) const;  // a tensor that its family knows and does not use

 private:
  static absl::StatusOr<Checkpoint> OpenFolder(const std::string& folder);
  static absl::StatusOr<Checkpoint> OpenGgufFile(const std::string& path);
  absl::Status ReadTokenizer();
  absl::Status ReadSentencePiece();
  absl::Status ReadTiktoken();
  absl::Status OpenWeights();
  absl::Status OpenShards(std::string_view index_json);
  absl::Status AddSafetensors(const std::string& file_name);
  absl::Status AddFile(const std::string& path, uint64_t bytes);  // to the fingerprint
  absl::Status AddTensor(SourceTensor tensor);
  // Tensors of the text part get the names that they have in a checkpoint without more, see Family::whole_prefix.
  absl::Status NameTextPart();
  std::string PathOf(std::string_view file_name) const;

  std::string path_;
  std::string tokenizer_;
  std::string emoji_;  // not empty: tokenizer_ is vocab.txt
  ChatSettings chat_;
  std::string fingerprint_;
  uint64_t weight_bytes_ = 0;
  const Family* family_ = nullptr;
  const GgufArchitecture* architecture_ = nullptr;  // null: a folder
  ModelSpec spec_;
  absl::flat_hash_map<std::string, SourceTensor> tensors_;
};

}  // namespace moed
