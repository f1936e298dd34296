// Variables of the environment that look like settings and are none: mistakes that nothing else would tell of.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"

namespace moed {

// Names in `environment` ("NAME=value", a null at the end) that begin with `prefix` and that nobody reads. Not those that
// Kubernetes and Docker make for services that are called like a program (MOED_SERVICE_HOST, MOED_PORT_50051_TCP).
std::vector<std::string> StrayVariables(const char* const* environment, std::string_view prefix,
                                        absl::FunctionRef<bool(std::string_view)> is_read);
// A line of the log for each.
void WarnOfStrayVariables(const std::vector<std::string>& names, std::string_view program);

}  // namespace moed
