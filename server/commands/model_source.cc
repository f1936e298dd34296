#include "server/commands/model_source.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <vector>

#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/store/header.h"
#include "core/store/sample_checksum.h"

namespace moed {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAllowed =
    "expected a GGUF file, a Hugging Face folder (config.json, tokenizer.json, *.safetensors) or a store of moed-pack";

absl::StatusOr<std::string> FingerprintOf(const std::vector<fs::path>& files) {
  std::string fingerprint;
  for (const fs::path& file : files) {
    struct stat info;
    if (stat(file.c_str(), &info) != 0) return ErrnoError(errno, "cannot examine ", file.string());
    MOED_ASSIGN_OR_RETURN(const uint64_t samples, SampleChecksum(file));
    fingerprint += StrCat(file.filename().string(), " ", info.st_size, " ", info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec, " ",
                          samples, "\n");
  }
  return fingerprint;
}

std::vector<fs::path> FilesIn(const fs::path& folder, auto wanted) {
  std::vector<fs::path> files;
  std::error_code error, ignored;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (wanted(entry->path().extension().string()) && !entry->is_directory(ignored)) files.push_back(entry->path());
  }
  std::ranges::sort(files);
  return files;
}

absl::Status NoCheckpoint(const std::string& path) {
  const std::vector<fs::path> ggufs = FilesIn(path, [](std::string_view extension) { return extension == ".gguf"; });
  if (ggufs.empty()) return InvalidArgument(path, " has no config.json: ", kAllowed);
  return InvalidArgument(path, " has no config.json, but GGUF files: name one of them, ",
                         JoinNames(ggufs, [](const fs::path& file) { return file.string(); }));
}

absl::StatusOr<ModelSource> ExamineFolder(const std::string& path) {
  std::error_code error;
  if (!fs::exists(fs::path(path) / "config.json", error)) return NoCheckpoint(path);
  ModelSource source{.path = path, .canonical = fs::canonical(path, error).string()};
  MOED_ASSIGN_OR_RETURN(source.fingerprint, FingerprintOf(FilesIn(path, [](std::string_view extension) {
                          constexpr std::array<std::string_view, 5> kRead = {".json", ".jinja", ".safetensors", ".model", ".txt"};
                          return std::ranges::find(kRead, extension) != kRead.end();
                        })));
  return source;
}

// All parts of a split file, of which `path` is one ("x-00002-of-00003.gguf"), or itself alone. In their order; a part may be
// missing.
std::vector<fs::path> PartsOf(const fs::path& path) {
  constexpr size_t kSuffix = std::string_view("-00001-of-00001.gguf").size();
  const std::string name = path.filename();
  int part = 0, parts = 0, end = 0;
  if (name.size() <= kSuffix ||
      std::sscanf(name.c_str() + name.size() - kSuffix, "-%5d-of-%5d.gguf%n", &part, &parts, &end) != 2 || end != kSuffix) {
    return {path};
  }
  std::vector<fs::path> files;
  for (int i = 1; i <= parts; ++i) {
    files.push_back(path.parent_path() /
                    absl::StrFormat("%s-%05d-of-%05d.gguf", name.substr(0, name.size() - kSuffix), i, parts));
  }
  return files;
}

// A link's own name counts, which says what is split; the folder's does not.
absl::StatusOr<ModelSource> ExamineGguf(const std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  std::vector<fs::path> parts = PartsOf(absolute);
  ModelSource source{.path = path, .canonical = fs::canonical(absolute.parent_path(), error) / parts.front().filename()};
  std::erase_if(parts, [&](const fs::path& part) { return !fs::exists(part, error); });
  MOED_ASSIGN_OR_RETURN(source.fingerprint, FingerprintOf(parts));
  return source;
}

}  // namespace

absl::StatusOr<ModelSource> ExamineModel(const std::string& path) {
  std::error_code error;
  const fs::file_status found = fs::status(path, error);
  if (!fs::exists(found)) return InvalidArgument(path, ": ", error ? error.message() : "no such file", "; ", kAllowed);
  if (fs::is_directory(found)) return ExamineFolder(path);
  if (!fs::is_regular_file(found)) return InvalidArgument(path, " is neither a file nor a folder; ", kAllowed);
  if (access(path.c_str(), R_OK) != 0) return InvalidArgument(path, " cannot be read: ", std::strerror(errno));
  const std::string first = FirstBytes(path);
  if (first.starts_with("GGUF")) return ExamineGguf(path);
  if (first == kStoreMagic) return ModelSource{.path = path, .is_store = true};
  if (fs::path(path).extension() == ".safetensors") {
    return InvalidArgument(path, " holds weights alone: name the folder that it lies in, with config.json and tokenizer.json");
  }
  return InvalidArgument(path, " is neither a GGUF file nor a whole store, by its first bytes; ", kAllowed);
}

absl::Status AddFile(const std::string& file, ModelSource& source) {
  MOED_ASSIGN_OR_RETURN(const std::string fingerprint, FingerprintOf({file}));
  source.fingerprint += fingerprint;
  return absl::OkStatus();
}

}  // namespace moed
