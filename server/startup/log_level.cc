#include "server/startup/log_level.h"

#include "core/base/status.h"
#include "spdlog/spdlog.h"

namespace moed {
namespace {

struct Level {
  std::string_view name;
  spdlog::level::level_enum level;
};
constexpr Level kLevels[] = {{"trace", spdlog::level::trace}, {"debug", spdlog::level::debug},
                             {"info", spdlog::level::info},   {"warning", spdlog::level::warn},
                             {"error", spdlog::level::err},   {"critical", spdlog::level::critical},
                             {"off", spdlog::level::off}};

}  // namespace

absl::StatusOr<spdlog::level::level_enum> ParseLogLevel(std::string_view name) {
  for (const Level& level : kLevels) {
    if (level.name == name) return level.level;
  }
  return InvalidArgument("unknown name \"", name,
                         "\"; allowed are: ", JoinNames(kLevels, [](const Level& level) { return level.name; }));
}

absl::Status SetLogLevel(std::string_view name) {
  MOED_ASSIGN_OR_RETURN(const spdlog::level::level_enum level, ParseLogLevel(name));
  spdlog::set_level(level);
  return absl::OkStatus();
}

}  // namespace moed
