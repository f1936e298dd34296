#include "server/daemon.h"

#include <malloc.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "core/base/version.h"
#include "server/app.h"
#include "server/startup/config.h"
#include "server/startup/device_nodes.h"
#include "server/startup/exhaustion.h"
#include "server/startup/limited_end.h"
#include "server/startup/outputs.h"
#include "server/startup/ready_notice.h"
#include "server/startup/sandbox_needs.h"
#include "server/startup/termination_signals.h"
#include "server/wire/grpc_log.h"
#include "server/wire/openssl_exit.h"
#include "server/wire/rpc_server.h"
#include "server/wire/stray_variables.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace moed {
namespace {

// The memory budget counts resident bytes: what is freed must leave the process, and threads must not hoard arenas.
void KeepHeapSmall() {
  mallopt(M_ARENA_MAX, 2);
  mallopt(M_MMAP_THRESHOLD, 64 << 10);
  mallopt(M_TRIM_THRESHOLD, 128 << 10);
}

int Fail(const absl::Status& status, int exit_code) {
  std::fprintf(stderr, "moed: %s\n", std::string(status.message().data(), status.message().size()).c_str());
  return exit_code;
}

int Run(App& app, const Config& config) {
  if (absl::Status status = app.Start(); !status.ok()) {
    if (config.backend == "cuda" && (SandboxInForce().landlock > 0 || SandboxInForce().seccomp)) {
      spdlog::warn("a sandbox is in force: whether it keeps the device away, --sandbox off tells");
    }
    return Fail(status, 1);
  }
  if (absl::Status status = SendReadyNotice(); !status.ok()) return Fail(status, 1);
  if (absl::Status status = GiveUpSockets(SandboxNeedsOf(config)); !status.ok()) return Fail(status, 1);
  const absl::Status status = app.Run();
  return status.ok() ? 0 : Fail(status, 1);
}

// What a model is made of waits for its reads and writes at its end.
int Serve(const Config& config, RoutingSource* routing) {
  auto app = std::make_unique<App>(config, routing);
  WatchTerminationSignals([app = app.get()] { return app->RequestStop(); }, [app = app.get()] { app->Reload(); });
  const int code = Run(*app, config);
  EndWithin(kDiskLimit, "a read or write does not end", [&app] { app.reset(); });
  return code;
}

}  // namespace

int RunDaemon(const std::vector<std::string>& arguments, std::string_view more_help, RoutingSource* routing) {
  NameExhaustion();
  KeepHeapSmall();
  AllowSmallReads();
  ExitWithoutOpenSsl();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of the write, not death
  BlockTerminationSignals();

  const auto outcome = ReadConfig(
      arguments, [](const char* name) { return std::getenv(name); }, more_help);
  if (!outcome.ok()) return Fail(outcome.status(), 2);
  if (!outcome->answer.empty()) {
    std::fputs(outcome->answer.c_str(), stdout);
    return 0;
  }
  if (absl::Status status = CheckConfig(outcome->config); !status.ok()) return Fail(status, 2);
  if (absl::Status status = CheckFolders(outcome->config); !status.ok()) return Fail(status, 2);
  spdlog::set_default_logger(spdlog::stderr_logger_mt("moed"));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  spdlog::set_level(spdlog::level::from_str(outcome->config.log_level));
  spdlog::flush_on(spdlog::level::info);
  TakeGrpcLog();
  spdlog::info("moed {}", BuildVersion());
  WarnOfExposure(outcome->config);
  WarnOfStrayVariables(StrayVariables(environ, "MOED_", ReadsVariable), "moed");
  const Config& config = outcome->config;
  MakeDeviceNodes(config);
  if (absl::Status status = EnterSandbox(config.sandbox, SandboxNeedsOf(config)); !status.ok()) return Fail(status, 2);

  return Serve(config, routing);
}

}  // namespace moed
