#include "server/wire/grpc_log.h"

#include <grpc/support/log.h>

#include <optional>
#include <string>

#include "core/base/status.h"
#include "server/wire/refused_lines.h"
#include "spdlog/spdlog.h"

namespace moed {
namespace {

spdlog::level::level_enum LevelOf(gpr_log_severity severity) {
  switch (severity) {
    case GPR_LOG_SEVERITY_ERROR:
      return spdlog::level::warn;  // of a connection: the program goes on
    case GPR_LOG_SEVERITY_INFO:
      return spdlog::level::info;
    case GPR_LOG_SEVERITY_DEBUG:
      break;
  }
  return spdlog::level::debug;
}

void Log(gpr_log_func_args* line) {
  static RefusedLines lines;
  const spdlog::level::level_enum level = LevelOf(line->severity);
  if (!spdlog::should_log(level)) return;
  const std::optional<uint64_t> left_out = lines.Take();
  if (!left_out) return;
  spdlog::log(level, "gRPC: {}{}", line->message, *left_out > 0 ? StrCat(" (", *left_out, " lines before it are left out)") : "");
}

}  // namespace

void TakeGrpcLog() { gpr_set_log_function(Log); }

}  // namespace moed
