// A file without a name, of bytes that no file system can leave out or compress: gone with the object, and with the process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/base/clock.h"

namespace moed {

class ScratchFile {
 public:
  // Bytes written at most, and seconds after which no more are begun; `least` are written however long it takes.
  struct Size {
    uint64_t least = 0;
    uint64_t most = 0;
    double seconds = 0;
  };
  // In `folder`, written through to the disk; sizes are multiples of 1 MiB. An error of the kernel names the folder.
  static absl::StatusOr<std::unique_ptr<ScratchFile>> Create(const std::string& folder, const Size& size, const Clock& clock);
  ~ScratchFile();
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  std::string path() const;  // opens it, in this process
  uint64_t bytes() const { return bytes_; }

 private:
  explicit ScratchFile(int descriptor) : descriptor_(descriptor) {}
  absl::Status Fill(const std::string& folder, const Size& size, const Clock& clock);

  const int descriptor_;
  uint64_t bytes_ = 0;
};

}  // namespace moed
