// Programs that this one starts and that do not outlive it.
#pragma once

#include <signal.h>
#include <sys/types.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace moed {

// The path of another program of the project, which lies beside this process's own: in a build as once it is installed.
// NOT_FOUND names it.
absl::StatusOr<std::string> FindProgram(std::string_view name);

struct ChildOptions {
  std::string program;  // a path
  std::vector<std::string> arguments;
  std::vector<std::string> variables;  // "NAME=VALUE", beside those of this process
  int input = STDIN_FILENO;
  int output = STDOUT_FILENO;
  int errors = STDERR_FILENO;
  int kept = -1;           // a descriptor that it holds as long as it lives
  bool own_group = false;  // Ctrl-C on the terminal does not reach it
  sigset_t blocked = {};   // signals, in it
};

// Gets SIGTERM when the thread that started it ends, however that comes. Destruction ends it by SIGKILL if it still runs. Not
// synchronised.
class Child {
 public:
  // Before there are other threads.
  static absl::StatusOr<Child> Start(const ChildOptions& options);
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)), exit_code_(other.exit_code_) {}
  Child& operator=(Child&&) = delete;
  ~Child();

  bool Ended();
  int exit_code() const { return exit_code_; }  // 128 + signal; once it has ended
  void Signal(int number) const;                // nothing once it has ended
  pid_t pid() const { return pid_; }

 private:
  explicit Child(pid_t pid) : pid_(pid) {}
  bool Reap(int flags);

  pid_t pid_;  // -1: it has ended
  int exit_code_ = -1;
};

}  // namespace moed
