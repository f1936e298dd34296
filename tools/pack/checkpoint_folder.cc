// A Hugging Face folder.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "core/base/json_value.h"
#include "core/base/status.h"
#include "core/store/checksum.h"
#include "core/tokenizer/tokenizer.h"
#include "tools/pack/chat_settings.h"
#include "tools/pack/checkpoint.h"
#include "tools/pack/json_text.h"
#include "tools/pack/quantization.h"
#include "tools/pack/safetensors.h"
#include "tools/pack/sentencepiece_model.h"
#include "tools/pack/tensor_parts.h"
#include "tools/pack/tiktoken_model.h"

namespace moed {
namespace {

constexpr std::string_view kTiktoken = "tiktoken.model";
constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";
constexpr std::string_view kModelOptFile = "hf_quant_config.json";
constexpr uint64_t kMaxTextBytes = 256ull << 20;

bool Exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// tensor -> shard
absl::StatusOr<std::map<std::string, std::string>> ReadWeightMap(const std::string& path, std::string_view text) {
  MOED_ASSIGN_OR_RETURN(const nlohmann::json index, ParseJsonObject(path, text));
  if (!index.contains("weight_map") || !index["weight_map"].is_object()) {
    return InvalidArgument(path, ": expected an object \"weight_map\" of tensor names and file names");
  }
  std::map<std::string, std::string> weight_map;
  for (const auto& [tensor, shard] : index["weight_map"].items()) {
    const std::string name = shard.is_string() ? shard.get<std::string>() : "";
    if (name.empty() || name.find('/') != std::string::npos || name == "." || name == "..") {
      return InvalidArgument(path, ": tensor \"", tensor, "\" is said to lie in ", ShownJson(shard),
                             ", expected a file name without folder");
    }
    weight_map[tensor] = name;
  }
  return weight_map;
}

}  // namespace

std::string Checkpoint::PathOf(std::string_view file_name) const { return (std::filesystem::path(path_) / file_name).string(); }

absl::StatusOr<Checkpoint> Checkpoint::OpenFolder(const std::string& folder) {
  Checkpoint checkpoint;
  checkpoint.path_ = folder;
  MOED_ASSIGN_OR_RETURN(std::string config, ReadText(checkpoint.PathOf("config.json"), kMaxTextBytes));
  MOED_RETURN_IF_ERROR(checkpoint.ReadTokenizer());
  MOED_ASSIGN_OR_RETURN(checkpoint.chat_, ReadChatSettings(folder));
  const std::string generation_path = checkpoint.PathOf("generation_config.json");
  std::string generation_config;
  if (Exists(generation_path)) {
    MOED_ASSIGN_OR_RETURN(generation_config, ReadText(generation_path, kMaxTextBytes));
  }
  MOED_RETURN_IF_ERROR(checkpoint.OpenWeights());
  if (const std::string path = checkpoint.PathOf(kModelOptFile); Exists(path)) {
    MOED_ASSIGN_OR_RETURN(const std::string text, ReadText(path, kMaxTextBytes));
    MOED_RETURN_IF_ERROR(AddModelOptConfig(path, text, config));
  }
  // What it says of quantisation decides what weights mean.
  checkpoint.fingerprint_ += StrCat("config:", Checksum(config), "\n");
  const absl::StatusOr<Quantization> quantization = TakeQuantization(config);
  if (!quantization.ok()) return Annotate(quantization.status(), folder);
  const absl::StatusOr<const Family*> family = FamilyOf(config);
  if (!family.ok()) return Annotate(family.status(), folder);
  checkpoint.family_ = *family;
  absl::StatusOr<ModelSpec> spec = (*family)->read_spec(config, generation_config);
  if (!spec.ok()) return Annotate(spec.status(), folder);
  checkpoint.spec_ = *std::move(spec);
  MOED_RETURN_IF_ERROR(JoinQuantized(*quantization, checkpoint.tensors_));
  MOED_RETURN_IF_ERROR(checkpoint.NameTextPart());
  if ((*family)->parts != nullptr) {
    MOED_RETURN_IF_ERROR(DivideTensors((*family)->parts(checkpoint.spec_), checkpoint.tensors_));
  }
  return checkpoint;
}

absl::Status Checkpoint::NameTextPart() {
  std::vector<NameBeginning> beginnings(family_->whole_names.begin(), family_->whole_names.end());
  if (!family_->whole_prefix.empty()) beginnings.push_back({family_->whole_prefix, "model."});
  std::vector<SourceTensor> renamed;
  absl::erase_if(tensors_, [&](auto& entry) {
    const auto fits = [&](const NameBeginning& beginning) { return entry.first.starts_with(beginning.whole); };
    const auto beginning = std::ranges::find_if(beginnings, fits);
    if (beginning == beginnings.end()) return false;
    SourceTensor& tensor = renamed.emplace_back(std::move(entry.second));
    tensor.name = StrCat(beginning->text, tensor.name.substr(beginning->whole.size()));
    return true;
  });
  for (SourceTensor& tensor : renamed) MOED_RETURN_IF_ERROR(AddTensor(std::move(tensor)));
  return absl::OkStatus();
}

absl::Status Checkpoint::ReadTokenizer() {
  const std::string words = PathOf("vocab.txt"), emoji = PathOf("emoji.json"), settings = PathOf("tokenizer_config.json");
  const bool whole = Exists(PathOf("tokenizer.json")), japanese = !whole && Exists(words) && Exists(emoji);
  if (!whole && !japanese && Exists(PathOf("spiece.model"))) return ReadSentencePiece();
  if (!whole && !japanese && Exists(PathOf(kTiktoken))) return ReadTiktoken();
  if (!whole && !japanese && Exists(PathOf("vocab.json")) && Exists(PathOf("merges.txt"))) {
    return NotFound(path_, " has no tokenizer.json, which transformers makes of its vocab.json: ",
                    "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)");
  }
  MOED_ASSIGN_OR_RETURN(tokenizer_, ReadText(japanese ? words : PathOf("tokenizer.json"), kMaxTextBytes));
  if (!japanese) return absl::OkStatus();
  MOED_ASSIGN_OR_RETURN(emoji_, ReadText(emoji, kMaxTextBytes));
  if (!Exists(settings)) return absl::OkStatus();
  MOED_ASSIGN_OR_RETURN(const std::string text, ReadText(settings, kMaxTextBytes));
  MOED_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJsonObject(settings, text));
  const auto cleans = json.find("do_clean_text");
  if (cleans == json.end() || *cleans == false) return absl::OkStatus();
  return InvalidArgument(settings, ": do_clean_text = ", ShownJson(*cleans), "; supported: false");
}

absl::Status Checkpoint::ReadTiktoken() {
  MOED_ASSIGN_OR_RETURN(const std::string model, ReadText(PathOf(kTiktoken), kMaxTextBytes));
  MOED_ASSIGN_OR_RETURN(const std::string settings, ReadText(PathOf("tokenizer_config.json"), kMaxTextBytes));
  absl::StatusOr<std::string> tokenizer = TiktokenTokenizer(model, settings);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), path_);
  tokenizer_ = *std::move(tokenizer);
  return absl::OkStatus();
}

absl::Status Checkpoint::ReadSentencePiece() {
  constexpr int kUsualExtraIds = 100, kMostExtraIds = 1 << 16;
  const std::string path = PathOf("spiece.model"), settings = PathOf("tokenizer_config.json");
  int extra_ids = kUsualExtraIds;
  if (Exists(settings)) {
    MOED_ASSIGN_OR_RETURN(const std::string text, ReadText(settings, kMaxTextBytes));
    MOED_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJsonObject(settings, text));
    const auto said = json.find("extra_ids");
    if (said != json.end()) {
      const bool fits = said->is_number_unsigned() && said->get<uint64_t>() <= kMostExtraIds;
      if (!fits) return InvalidArgument(settings, ": extra_ids = ", ShownJson(*said), ", expected 0 to ", kMostExtraIds);
      extra_ids = said->get<int>();
    }
  }
  MOED_ASSIGN_OR_RETURN(const std::string model, ReadText(path, kMaxTextBytes));
  absl::StatusOr<std::string> tokenizer = SentencePieceTokenizer(model, extra_ids);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), path_);
  tokenizer_ = *std::move(tokenizer);
  return absl::OkStatus();
}

absl::StatusOr<std::string> Checkpoint::CompiledTokenizer() const {
  return emoji_.empty() ? CompileTokenizer(tokenizer_) : CompileJapaneseTokenizer(tokenizer_, emoji_);
}

absl::Status Checkpoint::OpenWeights() {
  const bool single = Exists(PathOf(kSingleFile)), sharded = Exists(PathOf(kIndexFile));
  if (single && sharded) {
    return InvalidArgument(path_, " has both ", kSingleFile, " and ", kIndexFile, "; expected one of them, remove the other");
  }
  if (single) return AddSafetensors(std::string(kSingleFile));
  if (!sharded) return NotFound(path_, " has neither ", kSingleFile, " nor ", kIndexFile);
  MOED_ASSIGN_OR_RETURN(const std::string text, ReadText(PathOf(kIndexFile), kMaxTextBytes));
  return OpenShards(text);
}

absl::Status Checkpoint::OpenShards(std::string_view index_json) {
  const std::string index_path = PathOf(kIndexFile);
  using WeightMap = std::map<std::string, std::string>;
  MOED_ASSIGN_OR_RETURN(const WeightMap weight_map, ReadWeightMap(index_path, index_json));
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : weight_map) shards.insert(shard);
  for (const std::string& shard : shards) {
    if (!Exists(PathOf(shard))) return NotFound("shard ", PathOf(shard), " is missing; ", index_path, " names it");
    MOED_RETURN_IF_ERROR(AddSafetensors(shard));
  }
  for (const auto& [tensor, shard] : weight_map) {
    const SourceTensor* found = Find(tensor);
    if (found == nullptr || found->file->path() != PathOf(shard)) {
      return InvalidArgument(PathOf(shard), " has no tensor \"", tensor, "\"; ", index_path, " says it has",
                             found == nullptr ? "" : StrCat(" (found in ", found->file->path(), ")"));
    }
  }
  for (const std::string_view name : Names()) {
    if (weight_map.count(std::string(name)) == 0) {
      return InvalidArgument(Find(name)->file->path(), " has a tensor \"", name, "\" that ", index_path, " does not name");
    }
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::AddSafetensors(const std::string& file_name) {
  MOED_ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file, OpenBuffered(PathOf(file_name)));
  MOED_RETURN_IF_ERROR(AddFile(file->path(), file->size()));
  MOED_ASSIGN_OR_RETURN(std::vector<SourceTensor> tensors,
                        ReadSafetensors(std::shared_ptr<const RandomAccessFile>(std::move(file))));
  for (SourceTensor& tensor : tensors) MOED_RETURN_IF_ERROR(AddTensor(std::move(tensor)));
  return absl::OkStatus();
}

}  // namespace moed
