// Folders of tests.
#pragma once

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <system_error>

#include "core/base/check.h"

namespace moed {

// A folder of its own that goes with the test. It is locked while it is there, so that what killed tests have left goes with the
// next one.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    SweepOnce(parent);
    std::string pattern = (parent / kPattern).string();
    MOED_CHECK(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
    lock_ = Locked(path_);
    MOED_CHECK(lock_ >= 0);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::filesystem::remove_all(path_);
    close(lock_);
  }
  std::string operator/(std::string_view name) const { return (path_ / name).string(); }

 private:
  static constexpr std::string_view kPattern = "moed-test-XXXXXX", kPrefix = kPattern.substr(0, kPattern.size() - 6);

  // -1: it is gone, or somebody holds it.
  static int Locked(const std::filesystem::path& path) {
    const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
    close(fd);
    return -1;
  }
  // One that was made just now may not be locked yet.
  static void SweepOnce(const std::filesystem::path& parent) {
    static std::set<std::filesystem::path> swept;
    if (!swept.insert(parent).second) return;
    const auto old = std::filesystem::file_time_type::clock::now() - std::chrono::minutes(10);
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(parent, ignored)) {
      if (!entry.path().filename().string().starts_with(kPrefix) || entry.last_write_time(ignored) > old) continue;
      const int fd = Locked(entry.path());
      if (fd < 0) continue;
      std::filesystem::remove_all(entry.path(), ignored);
      close(fd);
    }
  }

  std::filesystem::path path_;
  int lock_ = -1;
};

// In memory where there is such a file system, since writers sync often. For what is small: containers have 64 MB there.
class MemoryFolder : public TemporaryFolder {
 public:
  MemoryFolder() : TemporaryFolder(Parent()) {}

 private:
  static std::filesystem::path Parent() {
    const char* memory = "/dev/shm";
    return access(memory, W_OK) == 0 ? memory : std::filesystem::temp_directory_path();
  }
};

}  // namespace moed
