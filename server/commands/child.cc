#include "server/commands/child.h"

#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <filesystem>

#include "core/base/status.h"

namespace moed {
namespace {

constexpr int kNotStarted = 127;  // as shells have it

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// The first of a name counts.
std::vector<std::string> EnvironmentWith(const std::vector<std::string>& variables) {
  std::vector<std::string> all = variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view known = *variable;
    const std::string_view name = known.substr(0, known.find('=') + 1);
    bool replaced = false;
    for (const std::string& mine : variables) replaced = replaced || mine.starts_with(name);
    if (!replaced) all.emplace_back(known);
  }
  return all;
}

// Between fork and exec: system calls alone. -1 leaves a descriptor as it is.
[[noreturn]] void Become(const ChildOptions& options, pid_t parent, char* const* arguments, char* const* variables) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kNotStarted);  // it ended before it was to be told of
  if (options.own_group) setpgid(0, 0);
  const int standard[] = {options.input, options.output, options.errors};
  for (int i = 0; i < 3; ++i) {
    if (standard[i] != i && dup2(standard[i], i) < 0) _exit(kNotStarted);
  }
  if (options.kept >= 0 && dup(options.kept) < 0) _exit(kNotStarted);  // the copy is not closed by exec
  signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, &options.blocked, nullptr);
  execve(options.program.c_str(), arguments, variables);
  _exit(kNotStarted);
}

}  // namespace

absl::StatusOr<std::string> FindProgram(std::string_view name) {
  std::error_code error;
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return ErrnoError(error.value(), "cannot read /proc/self/exe");
  std::string path = own.parent_path() / name;
  if (access(path.c_str(), X_OK) != 0) return ErrnoError(errno, path, " is needed, beside ", own.filename().string());
  return path;
}

absl::StatusOr<Child> Child::Start(const ChildOptions& options) {
  std::vector<std::string> words = options.arguments;
  words.insert(words.begin(), options.program);
  std::vector<std::string> variables = EnvironmentWith(options.variables);
  const std::vector<char*> argv = Pointers(words), envp = Pointers(variables);
  const pid_t parent = getpid(), pid = fork();
  if (pid < 0) return ErrnoError(errno, "cannot start ", options.program);
  if (pid == 0) Become(options, parent, argv.data(), envp.data());
  return Child(pid);
}

Child::~Child() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  Reap(0);
}

bool Child::Ended() { return pid_ < 0 || Reap(WNOHANG); }

void Child::Signal(int number) const {
  if (pid_ >= 0) kill(pid_, number);
}

bool Child::Reap(int flags) {
  int status = 0;
  pid_t ended;
  do {
    ended = waitpid(pid_, &status, flags);
  } while (ended < 0 && errno == EINTR);
  if (ended == 0) return false;
  exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  pid_ = -1;
  return true;
}

}  // namespace moed
