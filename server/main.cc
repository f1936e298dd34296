#include <string>
#include <vector>

#include "core/base/standard_output.h"
#include "server/commands/command.h"
#include "server/daemon.h"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool is_command = !arguments.empty() && !arguments.front().starts_with('-');
  const int code = is_command ? moed::RunCommand(arguments) : moed::RunDaemon(arguments, moed::ListCommands());
  return moed::EndOfOutput("moed", code);
}
