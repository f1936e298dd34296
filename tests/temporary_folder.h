// A folder of its own that goes with the test.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/base/check.h"

namespace moed {

class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::filesystem::path& parent = std::filesystem::temp_directory_path()) {
    std::string pattern = (parent / "moed-test-XXXXXX").string();
    MOED_CHECK(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(std::string_view name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
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
