#include "server/startup/allowed_store.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "core/base/status.h"

namespace moed {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostPathBytes = 4096;

bool LiesIn(const fs::path& path, const fs::path& folder) {
  const fs::path relative = path.lexically_relative(folder);
  return !relative.empty() && *relative.begin() != ".." && relative != ".";
}

absl::Status NotAllowed(const std::string& folder) {
  return absl::PermissionDeniedError(
      folder.empty() ? "store: the server may load the store of its start alone; --models-folder names a folder of others"
                     : "store: it lies outside of the server's --models-folder");
}

}  // namespace

absl::StatusOr<std::string> AllowedStore(std::string_view named, const std::string& at_start, const std::string& folder) {
  if (named.empty() || named == at_start) return at_start;
  if (folder.empty()) return NotAllowed(folder);
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' '; };  // refusals are logged
  if (named.size() > kMostPathBytes || std::ranges::any_of(named, is_control)) {
    return InvalidArgument("store: no path of at most ", kMostPathBytes, " bytes without control characters");
  }
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  if (error) return FailedPrecondition("--models-folder: ", folder, ": ", error.message());
  const fs::path named_path(named);
  const fs::path wanted = (named_path.is_absolute() ? named_path : root / named_path).lexically_normal();
  if (!LiesIn(wanted, root) && !LiesIn(wanted, fs::path(folder).lexically_normal())) return NotAllowed(folder);
  const fs::path found = fs::canonical(wanted, error);
  if (error == std::errc::no_such_file_or_directory) {
    return NotFound("store: ", named, ": no such file in the server's --models-folder");
  }
  if (error) return FailedPrecondition("store: ", named, ": ", error.message());
  if (!LiesIn(found, root)) return NotAllowed(folder);
  if (!fs::is_regular_file(found, error)) return InvalidArgument("store: ", named, " is no file");
  return found.string();
}

}  // namespace moed
