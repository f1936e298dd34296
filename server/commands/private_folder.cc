#include "server/commands/private_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <filesystem>

#include "core/base/status.h"

namespace moed {

absl::StatusOr<PrivateFolder> PrivateFolder::Make(const Environment& environment) {
  const char* parent = "/tmp";
  for (const char* name : {"TMPDIR", "XDG_RUNTIME_DIR"}) {
    const char* value = environment(name);
    if (value != nullptr && *value != '\0') parent = value;
  }
  std::string path = StrCat(parent, "/moed-XXXXXX");
  if (mkdtemp(path.data()) == nullptr) {
    return ErrnoError(errno, "cannot make a folder for sockets in ", parent, " ($XDG_RUNTIME_DIR chooses another)");
  }
  return PrivateFolder(std::move(path));
}

PrivateFolder::~PrivateFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace moed
