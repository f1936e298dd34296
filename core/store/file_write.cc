#include "core/store/file_write.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "core/base/status.h"

namespace moed {

absl::Status WriteError(int error_number, std::string_view verb, const std::string& path) {
  switch (error_number) {
    case ENOSPC:
      return ResourceExhausted("cannot ", verb, " ", path, ": the disk is full");
    case EDQUOT:
      return ResourceExhausted("cannot ", verb, " ", path, ": the disk quota is used up");
    case EFBIG:
      return ResourceExhausted("cannot ", verb, " ", path,
                               ": the file would be larger than allowed here (file system or ulimit -f)");
    default:
      return ErrnoError(error_number, "cannot ", verb, " ", path);
  }
}

absl::Status WriteAt(int fd, const std::string& path, uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return WriteError(errno, "write", path);
    offset += static_cast<uint64_t>(written);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status SyncData(int fd, const std::string& path) {
  if (fdatasync(fd) != 0) return WriteError(errno, "sync", path);
  return absl::OkStatus();
}

absl::Status SyncFolderOf(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ErrnoError(errno, "cannot open folder ", folder);
  const int result = fsync(fd);
  const int error_number = errno;
  close(fd);
  if (result != 0 && error_number != EINVAL)
    return ErrnoError(error_number, "cannot sync folder ", folder);  // EINVAL: cannot be synced
  return absl::OkStatus();
}

absl::Status ReplaceFile(const std::string& path, absl::FunctionRef<absl::Status(int fd, const std::string& partial)> write) {
  const std::string partial = path + ".partial";
  const int fd = open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return WriteError(errno, "create", partial);
  absl::Status status = write(fd, partial);
  if (status.ok()) status = SyncData(fd, partial);
  close(fd);
  if (status.ok() && std::rename(partial.c_str(), path.c_str()) != 0) status = WriteError(errno, "create", path);
  if (!status.ok()) {
    unlink(partial.c_str());
    return status;
  }
  return SyncFolderOf(path);
}

}  // namespace moed
