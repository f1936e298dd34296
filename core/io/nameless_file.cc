#include "core/io/nameless_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include "core/base/buffer.h"
#include "core/base/status.h"
#include "core/io/posix_file.h"

namespace moed {
namespace {

absl::Status WriteFailure(int error_number, const std::string& path) {
  const bool no_room = error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG;
  const absl::Status failure = ErrnoError(error_number, "cannot write ", path);
  return no_room ? absl::ResourceExhaustedError(failure.message()) : failure;
}

class DirectNamelessFile final : public NamelessFile {
 public:
  DirectNamelessFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  ~DirectNamelessFile() override { close(descriptor_); }
  DirectNamelessFile(const DirectNamelessFile&) = delete;
  DirectNamelessFile& operator=(const DirectNamelessFile&) = delete;

  uint64_t size() const override {
    struct stat info;
    return fstat(descriptor_, &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
  }
  const std::string& path() const override { return path_; }

  absl::Status ReadAt(uint64_t offset, std::span<std::byte> out) const override {
    ReadProgress progress(offset, out, kDirectAlignment);
    for (;;) {
      const ssize_t answer = pread(descriptor_, progress.data(), progress.size(), static_cast<off_t>(progress.offset()));
      if (auto outcome = progress.Take(path_, answer < 0 ? -errno : answer)) return *outcome;
    }
  }

  absl::Status WriteAt(uint64_t offset, std::span<const std::byte> bytes) override {
    while (!bytes.empty()) {
      const ssize_t written = pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return WriteFailure(errno, path_);
      // What follows a short answer begins at an aligned place again.
      const auto done = static_cast<size_t>(written) / kDirectAlignment * kDirectAlignment;
      if (done == 0) return WriteFailure(ENOSPC, path_);
      offset += done;
      bytes = bytes.subspan(done);
    }
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  const int descriptor_;
};

// Where a file system has no nameless files, one whose name is taken away at once.
int OpenNameless(const std::string& folder) {
  constexpr int kFlags = O_RDWR | O_CLOEXEC | O_DIRECT;
  const int descriptor = open(folder.c_str(), kFlags | O_TMPFILE, 0600);
  if (descriptor >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return descriptor;
  std::string name = folder + "/moed-nameless-XXXXXX";
  const int named = mkostemp(name.data(), O_CLOEXEC | O_DIRECT);
  if (named >= 0) unlink(name.c_str());
  return named;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NamelessFile>> OpenNamelessFile(const std::string& folder) {
  struct stat info;
  if (stat(folder.c_str(), &info) != 0) return ErrnoError(errno, "cannot open folder ", folder);
  if (!S_ISDIR(info.st_mode)) return InvalidArgument(folder, " is not a folder");
  const auto refused = [&] { return FailedPrecondition("the file system of ", folder, " refuses O_DIRECT (EINVAL)"); };
  const int descriptor = OpenNameless(folder);
  if (descriptor < 0 && errno == EINVAL) return refused();
  if (descriptor < 0) return ErrnoError(errno, "cannot create a file in ", folder);
  auto file = std::make_unique<DirectNamelessFile>(folder + "/(no name)", descriptor);
  MOED_ASSIGN_OR_RETURN(const Buffer page, Buffer::Allocate(kDirectAlignment));
  MOED_RETURN_IF_ERROR(file->WriteAt(0, page.span()));
  const absl::Status read = file->ReadAt(0, page.span());
  if (absl::IsInvalidArgument(read)) return refused();
  MOED_RETURN_IF_ERROR(read);
  return file;
}

}  // namespace moed
