#include "server/commands/dry_run_pack.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "core/base/status.h"
#include "server/commands/child.h"

namespace moed {
namespace {

constexpr size_t kMostBytes = 64 << 20;

struct Pipe {
  int ends[2] = {-1, -1};
  const bool made;

  Pipe() : made(pipe2(ends, O_CLOEXEC) == 0) {}
  ~Pipe() {
    CloseWriter();
    if (ends[0] >= 0) close(ends[0]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void CloseWriter() {
    if (ends[1] >= 0) close(std::exchange(ends[1], -1));
  }
};

absl::StatusOr<std::string> ReadToEnd(int descriptor) {
  std::string text;
  char piece[1 << 16];
  while (text.size() <= kMostBytes) {
    const ssize_t got = read(descriptor, piece, sizeof piece);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError(errno, "cannot read what moed-pack writes");
    if (got == 0) return text;
    text.append(piece, static_cast<size_t>(got));
  }
  return FailedPrecondition("moed-pack writes more than ", kMostBytes, " bytes");
}

}  // namespace

absl::StatusOr<std::string> DryRunPack(const std::string& checkpoint, const std::vector<std::string>& pack_flags) {
  Pipe pipe;
  if (!pipe.made) return ErrnoError(errno, "cannot make a pipe for moed-pack");
  ChildOptions options{.output = pipe.ends[1]};
  MOED_ASSIGN_OR_RETURN(options.program, FindProgram("moed-pack"));
  options.arguments = {checkpoint, checkpoint + ".moed", "--dry-run", "--json"};
  options.arguments.insert(options.arguments.end(), pack_flags.begin(), pack_flags.end());
  MOED_ASSIGN_OR_RETURN(Child pack, Child::Start(options));
  pipe.CloseWriter();
  MOED_ASSIGN_OR_RETURN(std::string text, ReadToEnd(pipe.ends[0]));
  while (!pack.Ended()) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // its output has ended, so it soon does
  if (pack.exit_code() == 0) return text;
  return FailedPrecondition("moed-pack --dry-run of ", checkpoint, " ended with ", pack.exit_code());
}

}  // namespace moed
