#include "server/commands/command_line.h"

#include <cstdio>
#include <vector>

#include "core/base/status.h"

namespace moed {

std::optional<int> ParseCommandLine(CLI::App& app, std::span<const std::string> arguments, std::string_view more) {
  constexpr int kExitUsage = 2;
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return 0;
  } catch (const CLI::ParseError& error) {
    const std::string allowed = JoinNames(app.get_options(), [](const CLI::Option* option) { return option->get_name(); });
    std::fprintf(stderr, "%s: %s; allowed are: %s%s\n", app.get_name().c_str(), error.what(), allowed.c_str(),
                 std::string(more).c_str());
    return kExitUsage;
  }
  return std::nullopt;
}

}  // namespace moed
