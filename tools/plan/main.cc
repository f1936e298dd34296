// moed-plan: the command line of the offline planners.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/standard_output.h"
#include "core/base/status.h"
#include "core/base/version.h"
#include "tools/plan/planner.h"
#include "tools/terminal/command_line.h"
#include "tools/terminal/interrupt.h"

namespace moed {
namespace {

constexpr const char* kDescription = "Measures a store on a calibration text and writes what moed shall do with its experts.";
constexpr const char* kFooter =
    "A plan that was interrupted is taken up by running the same command again.\n\n"
    "Example: moed-plan widths qwen3.store calibration.txt --loss-percent 2\n"
    "Exit status: 0 done, 1 failed, 2 wrong command line, 130 interrupted.";

int Run(int argc, char** argv) {
  CLI::App app(kDescription, "moed-plan");
  app.set_version_flag("--version", StrCat("moed-plan ", BuildVersion()));
  app.set_help_flag("-h,--help", "print this help");
  std::vector<std::pair<CLI::App*, std::unique_ptr<Planner>>> planners;
  for (const PlannerRow& row : Planners()) {
    CLI::App* command = app.add_subcommand(std::string(row.name), std::string(row.description));
    planners.emplace_back(command, row.make());
    planners.back().second->DefineFlags(*command);
  }
  app.require_subcommand(1);
  app.footer(kFooter);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "moed-plan: %s\ncommands: %s\nallowed: %s\n", error.what(),
                 JoinNames(Planners(), [](const PlannerRow& row) { return row.name; }).c_str(), AllowedFlags(app).c_str());
    return kExitUsage;
  }
  CatchInterrupts();
  for (const auto& [command, planner] : planners) {
    if (!command->parsed()) continue;
    const absl::Status status = planner->Run();
    if (status.ok()) continue;
    std::fprintf(stderr, "moed-plan: %s\n", std::string(status.message()).c_str());
    return absl::IsCancelled(status) ? kExitInterrupted : kExitFailed;
  }
  return kExitOk;
}

}  // namespace
}  // namespace moed

int main(int argc, char** argv) { return moed::EndOfOutput("moed-plan", moed::Run(argc, argv)); }
