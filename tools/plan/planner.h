// Offline planners: subcommands of moed-plan, rows of one table.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "absl/status/status.h"

namespace CLI {
class App;
}

namespace moed {

// One subcommand: its flags, then its work. Values of flags live in it.
class Planner {
 public:
  virtual ~Planner() = default;
  virtual void DefineFlags(CLI::App& command) = 0;
  // After the command line was parsed. CANCELLED after an interrupt, what was measured being kept.
  virtual absl::Status Run() = 0;
};

struct PlannerRow {
  std::string_view name;
  std::string_view description;
  std::unique_ptr<Planner> (*make)();
};
std::span<const PlannerRow> Planners();

}  // namespace moed
