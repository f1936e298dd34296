// The file that a planner writes, and beside it what was measured for it so far.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/store/file_lock.h"
#include "tools/plan/loss_evaluator.h"
#include "tools/plan/measured_losses.h"

namespace CLI {
class App;
}

namespace moed {

struct PlanOutput {
  std::string path;
  bool force = false;

  // --out, by default STORE and `suffix` (".widths.json"), and --force.
  void Define(CLI::App& command, std::string_view suffix);
  // After the command line was parsed. From then on the file, and what is beside it, is this planner's alone: UNAVAILABLE while
  // another process makes it. ALREADY_EXISTS: the file, without --force.
  absl::Status Choose(const std::string& store);
  std::string journal() const { return path + ".journal"; }
  // What was measured of this model on this text with `settings` (all that a measurement depends on beside them). Says on stderr
  // what is taken up.
  absl::StatusOr<MeasuredLosses> OpenLosses(const LossEvaluator& evaluator, std::string_view settings) const;
  // An error that ends measuring, with where what was measured is kept.
  absl::Status Kept(const absl::Status& status) const;

 private:
  std::string suffix_;
  std::optional<FileLock> lock_;
};

}  // namespace moed
