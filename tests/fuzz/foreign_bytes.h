// What the fuzzer's targets share. A target is a few lines: it hands the fuzzer's bytes to a real reader and checks what a caller
// may rely on when the reader accepts them; the reader must refuse all else without harm.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "core/base/check.h"
#include "core/store/checksum.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace moed::fuzz {

inline std::string_view Text(const uint8_t* data, size_t size) { return {reinterpret_cast<const char*>(data), size}; }

template <class T>
T GetAt(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}
template <class T>
void PutAt(std::string& bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

// Readers that want a path get a file of this folder, which goes with the process.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "moed-fuzz-XXXXXX").string();
    MOED_CHECK(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string Write(std::string_view name, std::string_view contents) const {
    const std::string path = path_ + "/" + std::string(name);
    std::ofstream(path, std::ios::binary) << contents;
    return path;
  }

 private:
  std::string path_;
};

// Of files that end with a checksum of all before it: it becomes right, so that what lies behind it is reached.
inline std::string Sealed(std::string_view contents) {
  std::string sealed(contents);
  if (sealed.size() < sizeof(uint64_t)) return sealed;
  const size_t end = sealed.size() - sizeof(uint64_t);
  PutAt(sealed, end, Checksum(std::string_view(sealed).substr(0, end)));
  return sealed;
}

}  // namespace moed::fuzz
