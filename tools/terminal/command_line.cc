#include "tools/terminal/command_line.h"

#include "core/base/status.h"

namespace moed {

std::string AllowedFlags(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  const CLI::App& command = chosen.empty() ? app : *chosen.front();
  std::string names;
  for (const CLI::Option* option : command.get_options()) {
    if (option->nonpositional()) names += StrCat(names.empty() ? "" : ", ", option->get_name());
  }
  return names;
}

}  // namespace moed
