#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "client/command.h"
#include "client/flag_values.h"
#include "client/shown.h"
#include "core/base/byte_size.h"
#include "core/base/status.h"
#include "proto/duration.h"

namespace moed {
namespace {

std::string LineOf(const moe::v1::LoadModelProgress& progress) {
  const std::string phase = LineOn(stderr, progress.phase());
  if (progress.all_bytes() == 0) return phase;
  std::string line = StrCat(phase, " ", FormatBytes(progress.done_bytes()), " of ", FormatBytes(progress.all_bytes()));
  if (progress.bytes_per_second() > 0) {
    line += absl::StrFormat(", %s/s, %.0f s left", FormatBytes(static_cast<uint64_t>(progress.bytes_per_second())),
                            progress.seconds_left());
  }
  return line;
}

// On a terminal one line that changes, elsewhere a line for each phase.
class ProgressPrinter {
 public:
  void Print(const moe::v1::LoadModelProgress& progress) {
    const bool same_phase = progress.phase() == phase_;
    phase_ = progress.phase();
    if (on_terminal_) {
      std::fprintf(stderr, "\r\033[K%s", LineOf(progress).c_str());
    } else if (!same_phase) {
      std::fprintf(stderr, "%s\n", LineOf(progress).c_str());
    }
  }
  void End() const {
    if (on_terminal_ && !phase_.empty()) std::fputs("\n", stderr);
  }

 private:
  const bool on_terminal_ = isatty(STDERR_FILENO) != 0;
  std::string phase_;
};

struct DrainLimit {
  double seconds = -1;

  void Define(CLI::App& app) {
    app.add_option("--drain-seconds", seconds, "how long running requests may go on; default: the server's --drain-seconds")
        ->transform(Between(0.0, 86400.0));
  }
  template <class Request>
  void Apply(Request& request) const {
    if (seconds >= 0) *request.mutable_drain_limit() = DurationOf(seconds);
  }
};

struct LoadFlags {
  std::string store;
  std::string memory_budget;
  bool replace = false;
  DrainLimit drain;
};

absl::Status Load(const LoadFlags& flags, CommandContext& context) {
  moe::v1::LoadModelRequest request;
  request.set_store(flags.store);
  request.set_replace(flags.replace);
  flags.drain.Apply(request);
  if (!flags.memory_budget.empty()) {
    const absl::StatusOr<uint64_t> bytes = ParseBytes(flags.memory_budget);
    MOED_RETURN_IF_ERROR(AsUsage(Annotate(bytes.status(), "--memory-budget")));
    request.set_memory_budget_bytes(*bytes);
  }
  ProgressPrinter printer;
  moe::v1::ModelInfo model;
  const absl::Status status = context.client.LoadModel(
      request,
      [&](const moe::v1::LoadModelProgress& progress) {
        printer.Print(progress);
        if (progress.has_model()) model = progress.model();
        return true;
      },
      &context.cancellation);
  printer.End();
  MOED_RETURN_IF_ERROR(status);
  absl::PrintF("loaded: %s from %s\n", LineOn(stdout, model.family()), LineOn(stdout, model.store_path()));
  return absl::OkStatus();
}

}  // namespace

CommandRun DefineLoad(CLI::App& app) {
  auto flags = std::make_shared<LoadFlags>();
  app.add_option("store", flags->store, "a store in the server's --models-folder; default: the one of its start");
  app.add_option("--memory-budget", flags->memory_budget,
                 "what it may take (\"8GiB\"); default: the server's, as it was resized last");
  app.add_flag("--replace", flags->replace, "the model at hand goes first");
  flags->drain.Define(app);
  return [flags](CommandContext& context) { return Load(*flags, context); };
}

CommandRun DefineUnload(CLI::App& app) {
  auto drain = std::make_shared<DrainLimit>();
  drain->Define(app);
  return [drain](CommandContext& context) -> absl::Status {
    moe::v1::UnloadModelRequest request;
    drain->Apply(request);
    MOED_ASSIGN_OR_RETURN(const moe::v1::UnloadModelResponse answer, context.client.UnloadModel(request, &context.cancellation));
    std::printf("unloaded: the process takes %s; moectl load loads a model\n", FormatBytes(answer.resident_set_bytes()).c_str());
    return absl::OkStatus();
  };
}

}  // namespace moed
