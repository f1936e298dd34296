#include "core/store/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/base/status.h"
#include "core/store/file_write.h"

namespace moed {
namespace {

absl::Status Lock(int fd, const std::string& path) {
  const absl::Status taken = absl::UnavailableError(StrCat("another process is at work on ", path));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) return errno == EWOULDBLOCK ? taken : ErrnoError(errno, "cannot lock ", path);
  // Another may have ended between open and lock: then this descriptor is what it made of the file, not to be touched.
  struct stat locked, named;
  const bool same = fstat(fd, &locked) == 0 && stat(path.c_str(), &named) == 0 && locked.st_ino == named.st_ino;
  return same ? absl::OkStatus() : taken;
}

}  // namespace

absl::StatusOr<int> OpenLocked(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return WriteError(errno, "create", path);
  const absl::Status status = Lock(fd, path);
  if (status.ok()) return fd;
  close(fd);
  return status;
}

absl::StatusOr<FileLock> FileLock::Take(const std::string& path) {
  MOED_ASSIGN_OR_RETURN(const int fd, OpenLocked(path));
  return FileLock(path, fd);
}

FileLock::FileLock(FileLock&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

FileLock::~FileLock() {
  if (fd_ < 0) return;
  unlink(path_.c_str());  // while it is locked, so that nobody else's is removed
  close(fd_);
}

}  // namespace moed
