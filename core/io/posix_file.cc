#include "core/io/posix_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/base/buffer.h"
#include "core/base/status.h"

namespace moed {
namespace {

constexpr size_t kLargestCall = size_t{1} << 30;  // the kernel itself stops at 0x7ffff000

absl::Status DirectRefused(const std::string& path) {
  return FailedPrecondition("the file system of ", path, " refuses O_DIRECT (EINVAL)");
}

}  // namespace

absl::Status EndedEarly(const std::string& path, uint64_t offset, size_t wanted, size_t got) {
  return DataLoss(path, " ends early: at offset ", offset, " wanted ", wanted, " bytes, got ", got);
}

size_t ReadProgress::size() const { return std::min(destination_.size() - done_, kLargestCall); }

std::optional<absl::Status> ReadProgress::Take(const std::string& path, int64_t answer) {
  const size_t wanted = destination_.size();
  if (answer == -EINTR || answer == -EAGAIN) return std::nullopt;
  if (answer == -ECANCELED) {
    return DataLoss("cannot read ", wanted, " bytes at offset ", begin_, " of ", path,
                    ": the kernel gave the read up (ECANCELED)");
  }
  if (answer < 0) return ErrnoError(static_cast<int>(-answer), "cannot read ", wanted, " bytes at offset ", begin_, " of ", path);
  const size_t reached = done_ + static_cast<size_t>(answer);
  if (reached == wanted) return absl::OkStatus();
  const size_t resume = reached / alignment_ * alignment_;
  if (resume == done_) return EndedEarly(path, begin_, wanted, reached);
  done_ = resume;
  return std::nullopt;
}

absl::StatusOr<std::unique_ptr<PosixFile>> PosixFile::Open(const std::string& path, int extra_flags, size_t alignment) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return ErrnoError(errno, "cannot open ", path);
  if (!S_ISREG(info.st_mode)) return InvalidArgument(path, " is not a regular file");
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | extra_flags);
  if (descriptor < 0 && errno == EINVAL && (extra_flags & O_DIRECT) != 0) return DirectRefused(path);
  if (descriptor < 0) return ErrnoError(errno, "cannot open ", path);
  if (fstat(descriptor, &info) != 0) {
    const absl::Status failed = ErrnoError(errno, "cannot learn the size of ", path);
    close(descriptor);
    return failed;
  }
  return std::unique_ptr<PosixFile>(new PosixFile(path, descriptor, static_cast<uint64_t>(info.st_size), alignment));
}

absl::StatusOr<std::unique_ptr<PosixFile>> PosixFile::OpenBuffered(const std::string& path) { return Open(path, 0, 1); }

absl::StatusOr<std::unique_ptr<PosixFile>> PosixFile::OpenDirect(const std::string& path, std::span<std::byte> probe) {
  MOED_ASSIGN_OR_RETURN(std::unique_ptr<PosixFile> file, Open(path, O_DIRECT, kDirectAlignment));
  MOED_ASSIGN_OR_RETURN(const Buffer page, Buffer::Allocate(kDirectAlignment));
  if (probe.empty()) probe = page.span();
  if (pread(file->descriptor_, probe.data(), kDirectAlignment, 0) < 0) {
    if (errno == EINVAL) return DirectRefused(path);
    return ErrnoError(errno, "cannot read the first bytes of ", path, " with O_DIRECT");
  }
  return file;
}

PosixFile::~PosixFile() { close(descriptor_); }

absl::Status PosixFile::ReadAt(uint64_t offset, std::span<std::byte> out) const {
  ReadProgress progress(offset, out, alignment_);
  for (;;) {
    const ssize_t answer = pread(descriptor_, progress.data(), progress.size(), static_cast<off_t>(progress.offset()));
    if (auto outcome = progress.Take(path_, answer < 0 ? -errno : answer)) return *outcome;
  }
}

}  // namespace moed
