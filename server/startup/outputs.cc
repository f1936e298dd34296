#include "server/startup/outputs.h"

#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/status.h"

namespace moed {
namespace {

namespace fs = std::filesystem;

absl::Status CheckThere(std::string_view flag, const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) return InvalidArgument(flag, ": there is no folder ", folder.string());
  if (!fs::is_directory(folder, error)) return InvalidArgument(flag, ": ", folder.string(), " is no folder");
  return absl::OkStatus();
}

// That is written to.
absl::Status CheckFolder(std::string_view flag, const fs::path& folder) {
  MOED_RETURN_IF_ERROR(CheckThere(flag, folder));
  if (access(folder.c_str(), W_OK | X_OK) != 0) return InvalidArgument(flag, ": ", folder.string(), " may not be written to");
  return absl::OkStatus();
}

fs::path FolderOf(const fs::path& name) { return name.has_parent_path() ? name.parent_path() : "."; }

absl::Status CheckFile(std::string_view flag, const fs::path& file) {
  if (file.empty()) return absl::OkStatus();
  std::error_code error;
  if (fs::is_directory(file, error)) return InvalidArgument(flag, ": ", file.string(), " is a folder, and a file is wanted");
  return CheckFolder(flag, FolderOf(file));
}

// That is made where it does not exist, with those that it lies in.
absl::Status CheckMadeFolder(std::string_view flag, fs::path folder) {
  if (folder.empty()) return absl::OkStatus();
  std::error_code error;
  while (!fs::exists(folder, error)) {
    const fs::path outer = FolderOf(folder);
    if (outer == folder) break;
    folder = outer;
  }
  return CheckFolder(flag, folder);
}

}  // namespace

absl::Status CheckFolders(const Config& config) {
  for (const auto& [flag, file] : {std::pair("--trace", &config.trace), std::pair("--learned-state", &config.learned_state),
                                   std::pair("--residency", &config.residency)}) {
    MOED_RETURN_IF_ERROR(CheckFile(flag, *file));
  }
  if (!config.models_folder.empty()) MOED_RETURN_IF_ERROR(CheckThere("--models-folder", config.models_folder));
  if (!config.kv_spill.empty()) MOED_RETURN_IF_ERROR(CheckFolder("--kv-spill", config.kv_spill));
  return CheckMadeFolder("--record-routing", config.record_routing);
}

}  // namespace moed
