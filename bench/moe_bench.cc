// moe-bench: measurements of the expert path.
#include <cstdio>
#include <string>

#include "bench/subcommand.h"

namespace moed {
namespace {

constexpr Subcommand kSubcommands[] = {
    {"replay", "recorded routing through the cache, its policies and predictors on a simulated disk", AddReplay},
    {"calibrate-hobbit", "the weights of HOBBIT's eviction that miss least on recorded routing", AddCalibrateHobbit},
    {"cost", "the processor's time for policy and prediction, by a model's shape", AddCost},
    {"fleet", "recorded routing through several caches, with requests shared out at random or by topic", AddFleet},
};

int Main(int argc, char** argv) {
  CLI::App app("Measurements of moed's expert path", "moe-bench");
  app.require_subcommand(1);
  std::function<absl::Status()> run;
  for (const Subcommand& row : kSubcommands) {
    CLI::App* subcommand = app.add_subcommand(std::string(row.name), std::string(row.description));
    subcommand->callback([&run, chosen = row.add(*subcommand)] { run = chosen; });
  }
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "moe-bench: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace moed

int main(int argc, char** argv) { return moed::Main(argc, argv); }
