// A folder that only this user enters, for sockets and a prompt; gone in the end. It is locked as long as its process lives: what
// a process that was killed has left is told by that, and removed by the next one.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "server/startup/config.h"

namespace moed {

inline constexpr std::string_view kPromptFile = "prompt";  // beside sockets, what a folder may hold

class PrivateFolder {
 public:
  // In $XDG_RUNTIME_DIR, else $TMPDIR, else /tmp. Errors name it.
  static absl::StatusOr<PrivateFolder> Make(const Environment& environment);
  PrivateFolder(PrivateFolder&& other) noexcept : path_(std::exchange(other.path_, "")), lock_(std::exchange(other.lock_, -1)) {}
  PrivateFolder& operator=(PrivateFolder&&) = delete;
  ~PrivateFolder();

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  PrivateFolder(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}

  std::string path_;
  int lock_;  // descriptor of the folder
};

}  // namespace moed
