#include "core/io/file.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/status.h"
#include "core/io/posix_file.h"

namespace moed {
namespace {

class MemoryFile final : public RandomAccessFile {
 public:
  MemoryFile(std::string name, std::string contents) : name_(std::move(name)), contents_(std::move(contents)) {}

  uint64_t size() const override { return contents_.size(); }
  const std::string& path() const override { return name_; }

  absl::Status ReadAt(uint64_t offset, std::span<std::byte> out) const override {
    const size_t begin = std::min<uint64_t>(offset, contents_.size());
    const size_t got = std::min(out.size(), contents_.size() - begin);
    if (got > 0) std::memcpy(out.data(), contents_.data() + begin, got);
    return got == out.size() ? absl::OkStatus() : EndedEarly(name_, offset, out.size(), got);
  }

 private:
  const std::string name_;
  const std::string contents_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenBuffered(const std::string& path) { return PosixFile::OpenBuffered(path); }

bool IsAbsent(const std::string& path) { return access(path.c_str(), F_OK) != 0 && errno == ENOENT; }

std::unique_ptr<RandomAccessFile> MakeMemoryFile(std::string name, std::string contents) {
  return std::make_unique<MemoryFile>(std::move(name), std::move(contents));
}

}  // namespace moed
