#include "tools/pack/checkpoint.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "core/base/status.h"
#include "core/store/header.h"
#include "core/store/sample_checksum.h"
#include "tools/pack/gguf/architecture.h"

namespace moed {

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return OpenFolder(path);
  if (FirstBytes(path) == kStoreMagic) {
    return InvalidArgument(path, " is a store already: moed --store ", path, " serves it, moed-pack inspect ", path,
                           " says what it holds; other formats are packed from the checkpoint it was made of");
  }
  if (std::filesystem::exists(path, ignored)) return OpenGgufFile(path);
  return InvalidArgument(path,
                         " is not a folder and not a file; expected a Hugging Face checkpoint with config.json, tokenizer.json ",
                         "and model.safetensors, or a GGUF file");
}

absl::Status Checkpoint::AddFile(const std::string& path, uint64_t bytes) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return ErrnoError(errno, "cannot examine ", path);
  MOED_ASSIGN_OR_RETURN(const uint64_t samples, SampleChecksum(path));
  const std::string name = std::filesystem::path(path).filename();
  fingerprint_ += StrCat(name, ":", bytes, ":", info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec, ":", samples, "\n");
  weight_bytes_ += bytes;
  return absl::OkStatus();
}

absl::Status Checkpoint::AddTensor(SourceTensor tensor) {
  const std::string name = tensor.name, path = tensor.file->path();
  const auto [at, inserted] = tensors_.emplace(name, std::move(tensor));
  if (inserted) return absl::OkStatus();
  return InvalidArgument("tensor \"", name, "\" is in both ", at->second.file->path(), " and ", path);
}

std::string Checkpoint::NameOf(const TrunkTensor& tensor) const {
  if (!is_gguf()) return tensor.checkpoint_name;
  const std::vector<std::string> names = architecture_->TrunkNames(tensor.store_name);
  const auto there = std::ranges::find_if(names, [&](const std::string& name) { return Find(name) != nullptr; });
  return there != names.end() ? *there : names.empty() ? "" : names.front();
}

std::string Checkpoint::NameOfExpert(LayerId layer, int expert, ExpertPart part) const {
  return is_gguf() ? GgufExpertName(layer, expert, part) : family_->expert_tensor(layer, expert, part);
}

std::vector<uint64_t> Checkpoint::ShapeOf(const TrunkTensor& tensor) const {
  if (is_gguf() && tensor.one_row) return {static_cast<uint64_t>(tensor.cols)};
  return tensor.checkpoint_shape();
}

bool Checkpoint::IsUnused(std::string_view name) const {
  return !is_gguf() && family_->unused != nullptr && family_->unused(spec_, name);
}

bool Checkpoint::is_quantised() const {
  return std::ranges::any_of(tensors_, [](const auto& entry) { return entry.second.type->block_columns > 1; });
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
