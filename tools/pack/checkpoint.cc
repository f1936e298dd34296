#include "tools/pack/checkpoint.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "core/base/json_value.h"
#include "core/base/status.h"
#include "core/model/family.h"
#include "tools/pack/json_text.h"
#include "tools/pack/tensor_parts.h"

namespace moed {
namespace {

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";
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

std::string Checkpoint::PathOf(std::string_view file_name) const { return (std::filesystem::path(folder_) / file_name).string(); }

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    return InvalidArgument(folder, " is not a folder; expected a Hugging Face checkpoint with config.json, tokenizer.json and ",
                           kSingleFile);
  }
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  MOED_ASSIGN_OR_RETURN(checkpoint.config_, ReadText(checkpoint.PathOf("config.json"), kMaxTextBytes));
  MOED_ASSIGN_OR_RETURN(checkpoint.tokenizer_, ReadText(checkpoint.PathOf("tokenizer.json"), kMaxTextBytes));
  const std::string generation = checkpoint.PathOf("generation_config.json");
  if (Exists(generation)) {
    MOED_ASSIGN_OR_RETURN(checkpoint.generation_config_, ReadText(generation, kMaxTextBytes));
  }
  MOED_RETURN_IF_ERROR(checkpoint.OpenWeights());
  MOED_RETURN_IF_ERROR(checkpoint.DivideTensors());
  return checkpoint;
}

// A config.json that no family takes is for the plan to refuse.
absl::Status Checkpoint::DivideTensors() {
  const absl::StatusOr<const Family*> family = FamilyOf(config_);
  if (!family.ok() || (*family)->parts == nullptr) return absl::OkStatus();
  const absl::StatusOr<ModelSpec> spec = (*family)->read_spec(config_, generation_config_);
  return spec.ok() ? moed::DivideTensors((*family)->parts(*spec), tensors_) : absl::OkStatus();
}

absl::Status Checkpoint::OpenWeights() {
  const bool single = Exists(PathOf(kSingleFile)), sharded = Exists(PathOf(kIndexFile));
  if (single && sharded) {
    return InvalidArgument(folder_, " has both ", kSingleFile, " and ", kIndexFile, "; expected one of them, remove the other");
  }
  if (single) return AddFile(std::string(kSingleFile));
  if (!sharded) return NotFound(folder_, " has neither ", kSingleFile, " nor ", kIndexFile);
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
    MOED_RETURN_IF_ERROR(AddFile(shard));
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

absl::Status Checkpoint::AddFile(const std::string& file_name) {
  const std::string path = PathOf(file_name);
  MOED_ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file, OpenBuffered(path));
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return ErrnoError(errno, "cannot examine ", path);
  fingerprint_ += StrCat(file_name, ":", file->size(), ":", info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec, "\n");
  weight_bytes_ += file->size();
  MOED_ASSIGN_OR_RETURN(std::vector<SourceTensor> tensors,
                        ReadSafetensors(std::shared_ptr<const RandomAccessFile>(std::move(file))));
  for (SourceTensor& tensor : tensors) {
    const std::string name = tensor.name;
    const auto [at, inserted] = tensors_.emplace(name, std::move(tensor));
    if (!inserted) return InvalidArgument("tensor \"", name, "\" is in both ", at->second.file->path(), " and ", path);
  }
  return absl::OkStatus();
}

const SourceTensor* Checkpoint::Find(std::string_view name) const {
  const auto at = tensors_.find(std::string(name));
  return at == tensors_.end() ? nullptr : &at->second;
}

std::vector<std::string_view> Checkpoint::Names() const {
  std::vector<std::string_view> names;
  names.reserve(tensors_.size());
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace moed
