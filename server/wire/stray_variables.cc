#include "server/wire/stray_variables.h"

#include "spdlog/spdlog.h"

namespace moed {
namespace {

bool IsServiceLink(std::string_view name) {
  return name.find("_SERVICE_") != std::string_view::npos || name.find("_PORT_") != std::string_view::npos ||
         name.ends_with("_PORT");
}

}  // namespace

std::vector<std::string> StrayVariables(const char* const* environment, std::string_view prefix,
                                        absl::FunctionRef<bool(std::string_view)> is_read) {
  std::vector<std::string> strays;
  for (; *environment != nullptr; ++environment) {
    const std::string_view variable = *environment;
    const std::string_view name = variable.substr(0, variable.find('='));
    if (name.starts_with(prefix) && !IsServiceLink(name) && !is_read(name)) strays.emplace_back(name);
  }
  return strays;
}

void WarnOfStrayVariables(const std::vector<std::string>& names, std::string_view program) {
  for (const std::string& name : names) {
    spdlog::warn("the variable {} is no setting, and nothing is read from it; {} --help lists those that are", name, program);
  }
}

}  // namespace moed
