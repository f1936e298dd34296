#include "tools/pack/gguf/split.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/base/status.h"

namespace moed {
namespace {

constexpr int64_t kMostParts = 99999;  // five digits

// "-00002-of-00003.gguf"
std::string PartSuffix(int64_t part, int64_t parts) { return absl::StrFormat("-%05d-of-%05d.gguf", part + 1, parts); }

absl::StatusOr<GgufFile> OpenFile(const std::string& path) {
  MOED_ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file, OpenBuffered(path));
  return ReadGguf(std::shared_ptr<const RandomAccessFile>(std::move(file)));
}

// What a part says of the whole.
struct Split {
  int64_t part, parts, tensors;

  static absl::StatusOr<Split> Of(const GgufFile& file) {
    Split split{0, 1, static_cast<int64_t>(file.tensors.size())};
    MOED_ASSIGN_OR_RETURN(split.parts, file.metadata.IntOr("split.count", 1, 0, kMostParts));
    if (split.parts <= 1) return Split{0, 1, split.tensors};
    MOED_ASSIGN_OR_RETURN(split.part, file.metadata.Int("split.no", 0, split.parts - 1));
    MOED_ASSIGN_OR_RETURN(split.tensors, file.metadata.Int("split.tensors.count", 0, INT32_MAX));
    return split;
  }
};

absl::Status AddTensors(GgufFile file, GgufModel& model) {
  for (GgufTensor& tensor : file.tensors) {
    const std::string name = tensor.name;
    const auto [at, inserted] = model.tensors.emplace(name, std::move(tensor));
    if (!inserted)
      return InvalidArgument("tensor \"", name, "\" is in both ", at->second.file->path(), " and ", file.file->path());
  }
  if (model.files.empty()) model.metadata = std::move(file.metadata);
  model.files.push_back(std::move(file.file));
  return absl::OkStatus();
}

absl::Status AddPart(const std::string& path, const Split& expected, GgufModel& model) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return NotFound(path, " is missing, which is part ", expected.part + 1, " of ", expected.parts);
  }
  MOED_ASSIGN_OR_RETURN(GgufFile file, OpenFile(path));
  const absl::StatusOr<Split> found = Split::Of(file);
  if (!found.ok()) return Annotate(found.status(), path);
  if (found->part != expected.part || found->parts != expected.parts || found->tensors != expected.tensors) {
    return InvalidArgument(path, ": is part ", found->part + 1, " of ", found->parts, " with ", found->tensors,
                           " tensors in all, expected part ", expected.part + 1, " of ", expected.parts, " with ",
                           expected.tensors);
  }
  return AddTensors(std::move(file), model);
}

}  // namespace

const GgufTensor* GgufModel::Find(std::string_view name) const {
  const auto found = tensors.find(name);
  return found == tensors.end() ? nullptr : &found->second;
}

absl::StatusOr<GgufModel> OpenGguf(const std::string& path) {
  MOED_ASSIGN_OR_RETURN(GgufFile named, OpenFile(path));
  absl::StatusOr<Split> split = Split::Of(named);
  if (!split.ok()) return Annotate(split.status(), path);
  GgufModel model;
  if (split->parts == 1) {
    MOED_RETURN_IF_ERROR(AddTensors(std::move(named), model));
    return model;
  }
  const std::string suffix = PartSuffix(split->part, split->parts);
  if (!path.ends_with(suffix)) {
    return InvalidArgument(path, ": is part ", split->part + 1, " of ", split->parts, ", expected a name that ends with ",
                           suffix);
  }
  const std::string stem = path.substr(0, path.size() - suffix.size());
  for (split->part = 0; split->part < split->parts; ++split->part) {
    MOED_RETURN_IF_ERROR(AddPart(stem + PartSuffix(split->part, split->parts), *split, model));
  }
  if (model.tensors.size() != static_cast<size_t>(split->tensors)) {
    return InvalidArgument(path, ": the parts have ", model.tensors.size(), " tensors, split.tensors.count says ",
                           split->tensors);
  }
  return model;
}

}  // namespace moed
