#include "server/commands/local_daemon.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/base/status.h"
#include "server/commands/run_log.h"

namespace moed {
namespace {

constexpr size_t kShownLogBytes = 2000;
constexpr int kPollMs = 100;

// -1: errno says why.
int ListenForNotices(const std::string& path) {
  sockaddr_un address{.sun_family = AF_UNIX};
  if (path.size() >= sizeof(address.sun_path)) {
    errno = ENAMETOOLONG;
    return -1;
  }
  path.copy(address.sun_path, path.size());
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0 || bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return fd;
  const int reason = errno;
  close(fd);
  errno = reason;
  return -1;
}

// Whole lines, at most so many bytes.
std::string EndOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream contents;
  contents << file.rdbuf();
  std::string text = contents.str();
  if (text.size() > kShownLogBytes) {
    text.erase(0, text.size() - kShownLogBytes);
    text.erase(0, text.find('\n') + 1);
  }
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

absl::StatusOr<Child> StartLogged(ChildOptions options, const std::string& log_path) {
  MOED_ASSIGN_OR_RETURN(options.program, FindProgram("moed"));
  options.input = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (options.input < 0) return ErrnoError(errno, "cannot open /dev/null");
  const absl::StatusOr<int> log = OpenRunLog(log_path);
  if (log.ok()) options.output = options.errors = *log;
  absl::StatusOr<Child> child = log.ok() ? Child::Start(options) : log.status();
  close(options.input);
  if (log.ok()) close(*log);
  return child;
}

}  // namespace

absl::StatusOr<LocalDaemon> LocalDaemon::Start(const PrivateFolder& folder, std::vector<std::string> flags, std::string log_path,
                                               const StopSignals& signals) {
  const std::string address = "unix:" + (folder / "moed"), notices_path = folder / "ready";
  flags.insert(flags.end(), {"--listen", address});
  const int notices = ListenForNotices(notices_path);
  if (notices < 0) return ErrnoError(errno, "cannot listen on ", notices_path);
  ChildOptions options{.arguments = std::move(flags),
                       .variables = {"NOTIFY_SOCKET=" + notices_path},
                       .own_group = true,
                       .blocked = signals.before()};
  absl::StatusOr<Child> child = StartLogged(std::move(options), log_path);
  if (child.ok()) return LocalDaemon(address, *std::move(child), notices, std::move(log_path));
  close(notices);
  return child.status();
}

LocalDaemon::~LocalDaemon() {
  if (notices_ >= 0) close(notices_);
}

absl::Status LocalDaemon::WaitUntilServing(StopSignals& signals) {
  for (char notice[64]; recv(notices_, notice, sizeof(notice), 0) < 0;) {
    if (child_.Ended()) return HowItEnded();
    if (signals.Wait(-1, notices_)) return absl::CancelledError("interrupted while the model was loaded");
  }
  return absl::OkStatus();
}

absl::Status LocalDaemon::HowItEnded() const {
  const int code = child_.exit_code();
  const std::string how = code == 128 + SIGKILL ? "was killed (out of memory in its group?)" : StrCat("ended with ", code);
  return FailedPrecondition("the daemon ", how, "; its log, ", log_path_, ", ends with\n", EndOf(log_path_));
}

absl::Status LocalDaemon::Stop(int seconds, StopSignals& signals) {
  const auto last = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  child_.Signal(SIGTERM);
  while (!child_.Ended()) {
    if (std::chrono::steady_clock::now() > last) child_.Signal(SIGKILL);
    if (signals.Wait(kPollMs)) child_.Signal(SIGTERM);
  }
  if (child_.exit_code() != 0 && child_.exit_code() != 128 + SIGTERM) return HowItEnded();
  std::error_code ignored;
  std::filesystem::remove(log_path_, ignored);
  return absl::OkStatus();
}

}  // namespace moed
