// moe-bench's subcommands are rows of one table.
#pragma once

#include <functional>
#include <string_view>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"

namespace moed {

struct Subcommand {
  std::string_view name;
  std::string_view description;
  // Adds its options to `app`; what is returned runs once they are parsed.
  std::function<absl::Status()> (*add)(CLI::App& app);
};

std::function<absl::Status()> AddReplay(CLI::App& app);
std::function<absl::Status()> AddCalibrateHobbit(CLI::App& app);
std::function<absl::Status()> AddCost(CLI::App& app);
std::function<absl::Status()> AddFleet(CLI::App& app);

}  // namespace moed
