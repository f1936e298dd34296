// The commands of `moed`: what it does when its first argument is a word. Without one it is the daemon.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace moed {

struct Command {
  std::string_view name;
  std::string_view usage;    // "MODEL [--memory BYTES]"
  std::string_view summary;  // one line
  // `arguments` are those after the name. Returns the exit code; 2: wrong usage.
  int (*run)(std::span<const std::string> arguments);
};
std::span<const Command> Commands();

// A line for each, for moed --help.
std::string ListCommands();

// Runs the one that the first argument names. 2, when there is none of that name: the known ones are told.
int RunCommand(std::span<const std::string> arguments);

}  // namespace moed
