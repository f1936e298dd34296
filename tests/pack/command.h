// Runs the built programs as a user does.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace moed {

struct CommandResult {
  int exit_code = -1;  // 128 + signal when it was killed
  std::string out;
  std::string err;
};

// A child process with its output in files; killed at destruction if it still runs.
class Command {
 public:
  // `prepare` runs in the child before the program starts; false ends it with exit code 77.
  explicit Command(
      const std::string& program, std::vector<std::string> arguments, const std::function<bool()>& prepare = [] { return true; });
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  void Signal(int number);
  // True while it runs.
  bool Running();
  CommandResult Wait();

 private:
  pid_t pid_ = -1;
  int out_ = -1;
  int err_ = -1;
  bool ended_ = false;
  int status_ = 0;
};

CommandResult RunProgram(const std::string& program, std::vector<std::string> arguments);
CommandResult RunPack(std::vector<std::string> arguments);  // moed-pack

}  // namespace moed
