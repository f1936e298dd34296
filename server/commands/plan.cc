#include "server/commands/plan.h"

#include <cstdio>
#include <optional>
#include <vector>

#include "CLI/CLI.hpp"
#include "core/base/byte_size.h"
#include "core/base/status.h"
#include "server/commands/command_line.h"
#include "server/commands/dry_run_pack.h"
#include "server/commands/model_source.h"
#include "server/plan/dry_run.h"
#include "server/plan/report.h"
#include "server/startup/default_budget.h"

namespace moed {
namespace {

constexpr const char* kDescription =
    "What serving a model takes and gives: the memory plan, the smallest and the comfortable budget, and the tokens a second to\n"
    "expect of decoding at several budgets. Memory, kernels and disk are measured for some seconds; nothing is written. With\n"
    "--device-budget: the plans of both memories, and no speed.";
constexpr const char* kFooter = "Exit status: 0 planned, 1 failed or --memory is too small, 2 wrong command line or no model.";

struct Flags {
  std::string model;
  std::vector<std::string> pack;  // of moed-pack
  std::optional<uint64_t> memory;
  std::optional<uint64_t> device;
  double seconds = 1;
  bool json = false;
};

absl::StatusOr<PlannedModel> OpenModel(const Flags& flags) {
  MOED_ASSIGN_OR_RETURN(const ModelSource source, ExamineModel(flags.model));
  if (source.is_store && !flags.pack.empty())
    return InvalidArgument(flags.model, " is packed already: --expert-formats comes too late");
  if (source.is_store) return OpenPlannedModel(flags.model);
  MOED_ASSIGN_OR_RETURN(const std::string dry_run, DryRunPack(flags.model, flags.pack));
  return ModelOfDryRun(flags.model, dry_run);
}

absl::Status Plan(const Flags& flags) {
  MOED_ASSIGN_OR_RETURN(const PlannedModel model, OpenModel(flags));
  const ServingOptions options = ServingOptionsOfThisMachine();
  const absl::StatusOr<DefaultBudget> by_default = FindDefaultBudget();
  if (!flags.memory.has_value()) MOED_RETURN_IF_ERROR(by_default.status());
  const uint64_t budget = flags.memory.has_value() ? *flags.memory : by_default->bytes;
  ServingInputs inputs = model.Inputs(budget, options);
  inputs.device_budget = flags.device;
  // Before anything is measured: a budget that is too small needs no speed.
  const absl::StatusOr<ServingPlan> plan = PlanServing(inputs);
  MOED_RETURN_IF_ERROR(Annotate(plan.status(), flags.memory ? "--memory" : "the default"));
  if (flags.device) {
    std::fputs((flags.json ? DevicePlanJson : DevicePlanText)(model, plan->memory).c_str(), stdout);
    return absl::OkStatus();
  }
  const MeasureLimits limits{
      .threads = options.threads, .memory_bytes = by_default.ok() ? by_default->bytes / 2 : budget, .seconds = flags.seconds};
  MOED_ASSIGN_OR_RETURN(const MachineSpeed machine, MeasureMachine(model, limits, Clock::Real()));
  MOED_ASSIGN_OR_RETURN(const Outlook outlook, LookAhead(model, machine, budget, flags.memory.has_value(), options));
  std::fputs((flags.json ? PlanJson : PlanText)(model, machine, outlook).c_str(), stdout);
  return absl::OkStatus();
}

// False: it was no size, which has been said.
bool ReadBytes(const char* flag, const std::string& text, std::optional<uint64_t>& bytes) {
  if (text.empty()) return true;
  const absl::StatusOr<uint64_t> read = ParseBytes(text);
  if (read.ok()) {
    bytes = *read;
  } else {
    std::fprintf(stderr, "moed plan: %s: %s\n", flag, std::string(read.status().message()).c_str());
  }
  return read.ok();
}

}  // namespace

int PlanModel(std::span<const std::string> arguments) {
  Flags flags;
  std::string memory, device, formats;
  CLI::App app(kDescription, "moed plan");
  app.add_option("MODEL", flags.model, "a store (.moed), or what moed-pack takes: a GGUF file, a Hugging Face folder")
      ->required();
  app.add_option("--memory", memory, "the memory budget (\"8GiB\") [what moed takes by default here]")->type_name("BYTES");
  app.add_option("--device-budget", device, "of a device with memory of its own, as moed's")->type_name("BYTES");
  app.add_option("--expert-formats", formats, "of moed-pack, for a MODEL that is not packed yet")->type_name("F[:Q],...");
  app.add_option("--seconds", flags.seconds, "that measuring takes of the kernels, and again of the disk [1]")
      ->check(CLI::Range(0.01, 60.0))
      ->type_name("S");
  app.add_flag("--json", flags.json, "as JSON (docs/planning.md)");
  app.footer(kFooter);
  if (const std::optional<int> end = ParseCommandLine(app, arguments)) return *end;
  if (!formats.empty()) flags.pack = {"--expert-formats", formats};
  if (!ReadBytes("--memory", memory, flags.memory) || !ReadBytes("--device-budget", device, flags.device)) return 2;
  const absl::Status status = Plan(flags);
  if (status.ok()) return 0;
  std::fprintf(stderr, "moed plan: %s\n", std::string(status.message()).c_str());
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

}  // namespace moed
