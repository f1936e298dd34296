#include "server/commands/private_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <vector>

#include "core/base/status.h"

namespace moed {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBegin = "moed-run-", kForm = "moed-run-XXXXXX";

// A descriptor of the folder with its lock; -1: it is another one's, or gone.
int Lock(const std::string& path) {
  const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return -1;
  struct stat held {
  }, named{};
  const bool ours = flock(folder, LOCK_EX | LOCK_NB) == 0 && fstat(folder, &held) == 0 && held.st_uid == geteuid() &&
                    lstat(path.c_str(), &named) == 0 && named.st_ino == held.st_ino;
  if (ours) return folder;
  close(folder);
  return -1;
}

// Nothing but what `moed run` puts there is taken away, sockets and the prompt: a folder with anything else in it is not one of
// these, whatever it is called.
void RemoveLeftOne(const std::string& path) {
  std::error_code error;
  std::vector<fs::path> left;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    if (!fs::is_socket(entry->symlink_status()) && entry->path().filename() != kPromptFile) return;
    left.push_back(entry->path());
  }
  for (const fs::path& file : left) fs::remove(file, error);
  fs::remove(path, error);
}

// Those of this user that nobody holds.
void RemoveLeftOnes(const fs::path& parent) {
  std::error_code error;
  std::vector<std::string> left;
  for (fs::directory_iterator entry(parent, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (name.size() == kForm.size() && name.starts_with(kBegin)) left.push_back(entry->path());
  }
  for (const std::string& path : left) {
    const int folder = Lock(path);
    if (folder < 0) continue;
    RemoveLeftOne(path);
    close(folder);
  }
}

}  // namespace

absl::StatusOr<PrivateFolder> PrivateFolder::Make(const Environment& environment) {
  const char* parent = "/tmp";
  for (const char* name : {"TMPDIR", "XDG_RUNTIME_DIR"}) {
    const char* value = environment(name);
    if (value != nullptr && *value != '\0') parent = value;
  }
  RemoveLeftOnes(parent);
  constexpr int kAttempts = 16;  // another process may take a new folder for one that was left, until it is locked
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::string path = StrCat(parent, "/", kForm);
    if (mkdtemp(path.data()) == nullptr) break;
    if (const int lock = Lock(path); lock >= 0) return PrivateFolder(std::move(path), lock);
    errno = EAGAIN;
  }
  return ErrnoError(errno, "cannot make a folder for sockets in ", parent, " ($XDG_RUNTIME_DIR chooses another)");
}

PrivateFolder::~PrivateFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
  if (lock_ >= 0) close(lock_);
}

}  // namespace moed
