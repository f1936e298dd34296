#include <string>
#include <vector>

#include "server/commands/command.h"
#include "server/daemon.h"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && !arguments.front().starts_with('-')) return moed::RunCommand(arguments);
  return moed::RunDaemon(arguments, moed::ListCommands());
}
