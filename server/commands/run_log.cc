#include "server/commands/run_log.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "core/base/status.h"

namespace moed {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBegin = "run-", kEnd = ".log";

std::optional<pid_t> ProcessOf(std::string_view name) {
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd) || name.size() < kBegin.size() + kEnd.size()) return std::nullopt;
  name = name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size());
  pid_t process = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), process);
  if (error != std::errc() || end != name.data() + name.size() || process <= 0) return std::nullopt;
  return process;
}

bool IsGone(pid_t process) { return kill(process, 0) != 0 && errno == ESRCH; }

bool NobodyHolds(const fs::path& path) {
  const int file = open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (file < 0) return false;
  const bool free = flock(file, LOCK_EX | LOCK_NB) == 0;
  close(file);
  return free;
}

}  // namespace

std::string RunLogPath(const std::string& folder) { return fs::path(folder) / StrCat(kBegin, getpid(), kEnd); }

absl::StatusOr<int> OpenRunLog(const std::string& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
  if (file < 0) return ErrnoError(errno, "cannot open ", path);
  flock(file, LOCK_EX | LOCK_NB);  // where a file system knows no locks, processes are told by their numbers alone
  return file;
}

void RemoveLeftRunLogs(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> left;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::optional<pid_t> process = ProcessOf(entry->path().filename().string());
    if (process && IsGone(*process) && NobodyHolds(entry->path())) left.push_back(entry->path());
  }
  for (const fs::path& path : left) fs::remove(path, error);
}

}  // namespace moed
