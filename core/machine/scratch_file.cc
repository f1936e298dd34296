#include "core/machine/scratch_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <random>
#include <vector>

#include "core/base/status.h"

namespace moed {
namespace {

constexpr size_t kWriteBytes = 1 << 20;

// Some file systems have no files without names: there it gets one that is taken away at once.
int OpenUnnamed(const std::string& folder) {
  const int unnamed = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (unnamed >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return unnamed;
  std::string name = folder + "/.moed-doctor-XXXXXX";
  const int named = mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) unlink(name.c_str());
  return named;
}

absl::Status WriteWhole(int descriptor, const std::vector<uint64_t>& words) {
  const auto* bytes = reinterpret_cast<const char*>(words.data());
  for (size_t done = 0; done < kWriteBytes;) {
    const ssize_t written = write(descriptor, bytes + done, kWriteBytes - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoError(errno, "cannot write");
    done += static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ScratchFile>> ScratchFile::Create(const std::string& folder, const Size& size,
                                                                 const Clock& clock) {
  const int descriptor = OpenUnnamed(folder);
  if (descriptor < 0) return ErrnoError(errno, "cannot make a temporary file in ", folder);
  // Not make_unique: the constructor is private.
  std::unique_ptr<ScratchFile> file(new ScratchFile(descriptor));
  MOED_RETURN_IF_ERROR(file->Fill(folder, size, clock));
  return file;
}

absl::Status ScratchFile::Fill(const std::string& folder, const Size& size, const Clock& clock) {
  std::mt19937_64 random(1);
  std::vector<uint64_t> words(kWriteBytes / sizeof(uint64_t));
  for (uint64_t& word : words) word = random();
  const std::string what = StrCat("a temporary file in ", folder);
  const int64_t start = clock.NowNanos();
  while (bytes_ < size.most) {
    if (bytes_ >= size.least && SecondsBetween(start, clock.NowNanos()) >= size.seconds) break;
    words[0] = bytes_;  // no two blocks are alike
    MOED_RETURN_IF_ERROR(Annotate(WriteWhole(descriptor_, words), what));
    bytes_ += kWriteBytes;
    // Waits for the disk from time to time, so that time is counted as it passes.
    constexpr uint64_t kSyncBytes = 16 << 20;
    if (bytes_ % kSyncBytes == 0 && fdatasync(descriptor_) != 0) return ErrnoError(errno, what, ": cannot write");
  }
  if (fdatasync(descriptor_) != 0) return ErrnoError(errno, what, ": cannot write");
  posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED);
  return absl::OkStatus();
}

ScratchFile::~ScratchFile() { close(descriptor_); }

std::string ScratchFile::path() const { return StrCat("/proc/self/fd/", descriptor_); }

}  // namespace moed
