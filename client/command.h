// What the subcommands of moectl share: the connection they are given, how they report, how they end.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "client/client.h"
#include "client/fidelity.h"
#include "client/interrupts.h"
#include "core/base/status.h"

namespace moed {

// Exit codes, part of the command line's contract.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,    // anything not below
  kExitUsage = 2,     // bad flag, value or address; unreadable file: nothing was asked of a server
  kExitNoServer = 3,  // UNAVAILABLE: nobody listens, draining, not serving
  kExitInvalid = 4,   // the server refused the request's contents, or what it takes has no room however long one waits
  kExitBusy = 5,      // queue full, session busy: waiting helps
  kExitDeadline = 6,
  kExitPartly = 7,       // bench: some of its requests failed
  kExitCancelled = 130,  // Ctrl-C
};
int ExitCodeFor(const absl::Status& status);

// INVALID_ARGUMENT of the command line itself, which no server has seen: kExitUsage.
absl::Status AsUsage(absl::Status status);
template <class T>
absl::StatusOr<T> AsUsage(absl::StatusOr<T> value) {
  return value.ok() ? std::move(value) : absl::StatusOr<T>(AsUsage(value.status()));
}
template <class... Parts>
absl::Status UsageError(const Parts&... parts) {
  return AsUsage(InvalidArgument(parts...));
}

// That some of many requests failed, which was reported: kExitPartly.
absl::Status PartlyFailed(std::string_view what);

// For standard error.
std::string ErrorText(const absl::Status& status);

struct GlobalOptions {
  std::string server = "127.0.0.1:50051";
  double connect_timeout_seconds = 5;
  double deadline_seconds = 0;  // 0 = none
  ClientTls tls;
  std::string token_file;
  bool insecure = false;
};

// Given to a command when it runs.
struct CommandContext {
  Client& client;
  Cancellation& cancellation;  // Ctrl-C cancels it
  Interrupts& interrupts;
  const GlobalOptions& global;
};

// A subcommand defines its flags on `app` and returns what to run.
struct CommandRun {
  using WithServer = std::function<absl::Status(CommandContext&)>;
  template <class Run>
  CommandRun(Run run) : run(std::move(run)) {}  // NOLINT(google-explicit-constructor)
  CommandRun(std::function<absl::Status()> prepare, WithServer run) : prepare(std::move(prepare)), run(std::move(run)) {}

  // Before a server is looked for: checks the flags and reads the files that they name.
  std::function<absl::Status()> prepare = [] { return absl::OkStatus(); };
  WithServer run;
};
CommandRun DefineGenerate(CLI::App& app);
CommandRun DefineChat(CLI::App& app);
CommandRun DefineScore(CLI::App& app);
CommandRun DefineTokenize(CLI::App& app);
CommandRun DefineInfo(CLI::App& app);
CommandRun DefineStats(CLI::App& app);
CommandRun DefineHealth(CLI::App& app);
CommandRun DefineBench(CLI::App& app);
CommandRun DefineSession(CLI::App& app);
CommandRun DefineAbort(CLI::App& app);
CommandRun DefineTenants(CLI::App& app);
CommandRun DefineResize(CLI::App& app);
CommandRun DefinePin(CLI::App& app);
CommandRun DefineUnpin(CLI::App& app);
CommandRun DefinePrefetch(CLI::App& app);
CommandRun DefineResidency(CLI::App& app);
CommandRun DefineLogLevel(CLI::App& app);
CommandRun DefineDrain(CLI::App& app);
CommandRun DefineUndrain(CLI::App& app);
CommandRun DefineLoad(CLI::App& app);
CommandRun DefineUnload(CLI::App& app);
// One that needs no server.
using LocalCommandRun = std::function<absl::Status()>;
LocalCommandRun DefineRender(CLI::App& app);
LocalCommandRun DefineToken(CLI::App& app);

// Flags of sampling and stopping, shared by generate, chat and bench.
struct GenerateFlags {
  moe::v1::Sampling sampling;
  moe::v1::Stopping stopping;
  double time_limit_seconds = 0;
  std::vector<std::string> logit_bias;
  std::string fidelity;
  moe::v1::Priority priority = moe::v1::PRIORITY_UNSPECIFIED;
  std::string json_schema;  // a file
  std::string regex;
  bool json_object = false;

  void Define(CLI::App& app);
  absl::Status Apply(moe::v1::GenerateRequest& request) const;
};

inline constexpr const char* kFidelityHelp =
    "exact, fast-matmul (prompts may be multiplied with dense matrices in 16 bits), bounded:X (at most the share X of a token's "
    "gate mass in a layer is lowered, skipped or masked) or fast; default: what the server's preset does";

// A usage error names the file. "-" is standard input.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path);
std::string FinishName(moe::v1::FinishReason reason);      // as in the protocol: "stop_string"
void PrintSummary(const moe::v1::Finish& finish);          // of an answer, one line to standard error
std::string LossText(const moe::v1::RequestStats& stats);  // "exact", or what was lost, now or before

}  // namespace moed
