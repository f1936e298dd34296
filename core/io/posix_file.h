// Private to core/io: open descriptors and the arithmetic of reads that the kernel answers in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/io/file.h"

namespace moed {

// What O_DIRECT asks of offsets, addresses and sizes; enough for every block device in use.
inline constexpr size_t kDirectAlignment = 4096;

// One range on its way from `path` into memory. Ask the kernel for `size()` bytes at `offset()` into `data()`, hand its answer to
// Take, and repeat until Take returns the outcome. After a short answer the next question starts at the last multiple of
// `alignment` (1 or kDirectAlignment) that was reached.
class ReadProgress {
 public:
  ReadProgress(uint64_t offset, std::span<std::byte> destination, size_t alignment)
      : begin_(offset), destination_(destination), alignment_(alignment) {}

  uint64_t offset() const { return begin_ + done_; }
  std::byte* data() const { return destination_.data() + done_; }
  size_t size() const;  // one read call takes at most 1 GiB of a larger range

  // `answer`: bytes read, or a negative errno. Nothing: ask again (EINTR and EAGAIN included). Never CANCELLED, which is what who
  // asked for the read says (read_queue.h).
  std::optional<absl::Status> Take(const std::string& path, int64_t answer);

 private:
  uint64_t begin_;
  std::span<std::byte> destination_;
  size_t alignment_;
  size_t done_ = 0;
};

// An open regular file; closes its descriptor. Reads from any thread.
class PosixFile final : public RandomAccessFile {
 public:
  // Refuses what is not a regular file, without waiting for the other end of a pipe.
  static absl::StatusOr<std::unique_ptr<PosixFile>> OpenBuffered(const std::string& path);
  // O_DIRECT, shown to work by one real read, into `probe` where there is one. FAILED_PRECONDITION where the file system refuses
  // it.
  static absl::StatusOr<std::unique_ptr<PosixFile>> OpenDirect(const std::string& path, std::span<std::byte> probe = {});
  ~PosixFile() override;
  PosixFile(const PosixFile&) = delete;
  PosixFile& operator=(const PosixFile&) = delete;

  uint64_t size() const override { return size_; }
  const std::string& path() const override { return path_; }
  absl::Status ReadAt(uint64_t offset, std::span<std::byte> out) const override;

  int descriptor() const { return descriptor_; }

 private:
  PosixFile(std::string path, int descriptor, uint64_t size, size_t alignment)
      : path_(std::move(path)), descriptor_(descriptor), size_(size), alignment_(alignment) {}
  static absl::StatusOr<std::unique_ptr<PosixFile>> Open(const std::string& path, int extra_flags, size_t alignment);

  const std::string path_;
  const int descriptor_;
  const uint64_t size_;
  const size_t alignment_;
};

// DATA_LOSS that says what was wanted and what there was.
absl::Status EndedEarly(const std::string& path, uint64_t offset, size_t wanted, size_t got);

}  // namespace moed
