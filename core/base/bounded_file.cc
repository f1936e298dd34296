#include "core/base/bounded_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/cleanup/cleanup.h"
#include "core/base/byte_size.h"
#include "core/base/status.h"

namespace moed {
namespace {

constexpr size_t kPieceBytes = 64 << 10;

}  // namespace

absl::StatusOr<std::string> ReadBoundedFile(const std::string& path, size_t most) {
  const auto failed = [&] { return InvalidArgument(ErrnoError(errno, "cannot read '", path, "'").message()); };
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return failed();
  const absl::Cleanup closed = [file] { close(file); };
  std::string text;
  for (;;) {
    const size_t had = text.size();
    text.resize(had + std::min(kPieceBytes, most + 1 - had));
    const ssize_t count = read(file, text.data() + had, text.size() - had);
    if (count < 0 && errno != EINTR) return failed();
    text.resize(had + static_cast<size_t>(std::max<ssize_t>(count, 0)));
    if (count == 0) return text;
    if (text.size() > most) return InvalidArgument("'", path, "' is longer than ", FormatBytes(most));
  }
}

}  // namespace moed
