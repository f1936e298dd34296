#include "bench/systems/daemon.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string_view>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/status.h"

namespace moed {
namespace {

constexpr absl::Duration kStartLimit = absl::Seconds(120);
constexpr absl::Duration kEndLimit = absl::Seconds(10);
constexpr absl::Duration kPoll = absl::Milliseconds(5);

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// What a daemon that ended said last, on one line.
std::string Reason(const std::string& log) {
  constexpr size_t kLongest = 800;
  constexpr std::string_view kName = "moed: ";
  size_t begin = log.rfind(StrCat("\n", kName));
  begin = begin != std::string::npos ? begin + 1 + kName.size() : log.starts_with(kName) ? kName.size() : 0;
  const std::string reason =
      absl::StrJoin(absl::StrSplit(log.substr(begin, kLongest), absl::ByAnyChar(" \n"), absl::SkipEmpty()), " ");
  return reason.empty() ? "it ended without a word" : reason;
}

// Only what is allowed between fork and exec of a process with threads.
[[noreturn]] void RunChild(const char* program, char* const* arguments, int log) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execv(program, arguments);
  constexpr std::string_view kMessage = "the program cannot be run\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage.data(), kMessage.size());
  _exit(127);
}

}  // namespace

std::string ProgramFolder() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
}

absl::Status CheckProgram(const std::string& program) {
  if (access(program.c_str(), X_OK) != 0) return NotFound(program, ": no program to run; --moed names it");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Daemon>> Daemon::Start(const std::string& program, std::vector<std::string> flags) {
  MOED_RETURN_IF_ERROR(CheckProgram(program));
  std::string log = std::filesystem::temp_directory_path().string() + "/moe-bench-XXXXXX";
  const int descriptor = mkostemp(log.data(), O_CLOEXEC);
  if (descriptor < 0) return Internal("no file for the daemon's log can be made in ", log);
  flags.insert(flags.begin(), program);
  flags.insert(flags.end(), {"--listen", "127.0.0.1:0", "--metrics-listen", "off"});
  std::vector<char*> arguments;
  for (std::string& flag : flags) arguments.push_back(flag.data());
  arguments.push_back(nullptr);
  const pid_t pid = fork();
  if (pid == 0) RunChild(program.c_str(), arguments.data(), descriptor);
  close(descriptor);
  if (pid < 0) return Internal(program, " cannot be started");
  std::unique_ptr<Daemon> daemon(new Daemon(pid, log));
  MOED_RETURN_IF_ERROR(daemon->WaitUntilReady());
  return daemon;
}

absl::Status Daemon::WaitUntilReady() {
  static const std::regex kAddress("listening on (127\\.0\\.0\\.1:[0-9]+)");
  const absl::Time limit = absl::Now() + kStartLimit;
  for (;;) {
    const bool ended = Ended();
    const std::string log = ReadText(log_);
    if (ended) return FailedPrecondition(Reason(log));
    std::smatch match;
    if (log.find(" ready: ") != std::string::npos && std::regex_search(log, match, kAddress)) {
      MOED_ASSIGN_OR_RETURN(client_, Client::Connect(match[1]));
      return absl::OkStatus();
    }
    if (absl::Now() >= limit)
      return FailedPrecondition("not ready after ", absl::ToInt64Seconds(kStartLimit), " s: ", Reason(log));
    absl::SleepFor(kPoll);
  }
}

bool Daemon::Ended() {
  if (pid_ != 0 && waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = 0;
  return pid_ == 0;
}

Daemon::~Daemon() {
  client_.reset();
  if (!Ended()) kill(pid_, SIGTERM);
  for (const absl::Time limit = absl::Now() + kEndLimit; !Ended() && absl::Now() < limit;) absl::SleepFor(kPoll);
  if (!Ended()) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  std::remove(log_.c_str());
}

uint64_t Daemon::peak_resident_bytes() const {
  static const std::regex kPeak("VmHWM:\\s+([0-9]+) kB");
  const std::string status = ReadText(StrCat("/proc/", pid_, "/status"));
  std::smatch match;
  return std::regex_search(status, match, kPeak) ? std::strtoull(match[1].str().c_str(), nullptr, 10) * 1024 : 0;
}

}  // namespace moed
