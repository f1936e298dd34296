// A folder that only this user enters, for sockets; gone in the end.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "server/startup/config.h"

namespace moed {

class PrivateFolder {
 public:
  // In $XDG_RUNTIME_DIR, else $TMPDIR, else /tmp. Errors name it.
  static absl::StatusOr<PrivateFolder> Make(const Environment& environment);
  PrivateFolder(PrivateFolder&& other) noexcept : path_(std::exchange(other.path_, "")) {}
  PrivateFolder& operator=(PrivateFolder&&) = delete;
  ~PrivateFolder();

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  explicit PrivateFolder(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

}  // namespace moed
