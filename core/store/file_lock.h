// One process at a time is at work on a file.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace moed {

// The descriptor of the file, created where it was not there, open to read and write, locked until it is closed. UNAVAILABLE
// while another process has it locked, and where that one has just renamed or removed it.
absl::StatusOr<int> OpenLocked(const std::string& path);

// A file that is there for its lock alone, and removed with it. A process that is killed leaves it unlocked.
class FileLock {
 public:
  static absl::StatusOr<FileLock> Take(const std::string& path);  // errors as OpenLocked

  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  FileLock(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_ = -1;
};

}  // namespace moed
