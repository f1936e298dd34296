#include "tests/pack/command.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

#include "core/base/check.h"
#include "tests/paths.h"

namespace moed {
namespace {

std::string Contents(int fd) {
  struct stat info;
  MOED_CHECK(fstat(fd, &info) == 0);
  std::string text(static_cast<size_t>(info.st_size), '\0');
  MOED_CHECK(pread(fd, text.data(), text.size(), 0) == info.st_size);
  return text;
}

}  // namespace

Command::Command(const std::string& program, std::vector<std::string> arguments, const std::function<bool()>& prepare)
    : out_(memfd_create("out", MFD_CLOEXEC)), err_(memfd_create("err", MFD_CLOEXEC)) {
  arguments.insert(arguments.begin(), BuiltProgram(program));
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_ = fork();
  MOED_CHECK(pid_ >= 0);
  if (pid_ > 0) return;
  dup2(out_, STDOUT_FILENO);
  dup2(err_, STDERR_FILENO);
  if (!prepare()) _exit(77);
  execv(argv[0], argv.data());
  _exit(126);
}

Command::~Command() {
  if (!ended_) {
    Signal(SIGKILL);
    Wait();
  }
  close(out_);
  close(err_);
}

void Command::Signal(int number) {
  if (!ended_) kill(pid_, number);
}

bool Command::Running() {
  if (!ended_) ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
  return !ended_;
}

CommandResult Command::Wait() {
  if (!ended_) MOED_CHECK(waitpid(pid_, &status_, 0) == pid_);
  ended_ = true;
  return {WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_), Contents(out_), Contents(err_)};
}

CommandResult RunProgram(const std::string& program, std::vector<std::string> arguments) {
  return Command(program, std::move(arguments)).Wait();
}

CommandResult RunPack(std::vector<std::string> arguments) { return RunProgram("moed-pack", std::move(arguments)); }

}  // namespace moed
