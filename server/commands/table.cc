// The table of commands. A new one is a file here and a row.

#include <algorithm>
#include <cstdio>

#include "core/base/status.h"
#include "server/commands/command.h"
#include "server/commands/doctor.h"
#include "server/commands/plan.h"
#include "server/commands/run.h"

namespace moed {
namespace {

constexpr Command kCommands[] = {
    {"run", "MODEL [--memory BYTES] [--prompt TEXT]", "from a model's files to a conversation in the terminal", RunModel},
    {"plan", "MODEL [--memory BYTES] [--json]", "the memory plan of a model, and the tokens a second to expect, by budget",
     PlanModel},
    {"doctor", "[--path PATH] [--json]", "what this machine gives, what is slower than it could be, and the remedy",
     CheckMachine},
};

}  // namespace

std::span<const Command> Commands() { return kCommands; }

std::string ListCommands() {
  std::string text = "Commands (moed COMMAND --help explains one):\n";
  for (const Command& command : Commands())
    text += StrCat("  moed ", command.name, " ", command.usage, "\n      ", command.summary, "\n");
  return text;
}

int RunCommand(std::span<const std::string> arguments) {
  const auto found = std::ranges::find(Commands(), arguments.front(), &Command::name);
  if (found != Commands().end()) return found->run(arguments.subspan(1));
  std::fprintf(stderr, "moed: unknown command \"%s\"; allowed are: %s, or flags of the daemon; see moed --help\n",
               arguments.front().c_str(), JoinNames(Commands(), [](const Command& command) { return command.name; }).c_str());
  return 2;
}

}  // namespace moed
