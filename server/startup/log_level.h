// The names of the log's levels.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "spdlog/common.h"

namespace moed {

// INVALID_ARGUMENT lists those that are allowed.
absl::StatusOr<spdlog::level::level_enum> ParseLogLevel(std::string_view name);

// Of everything that is logged from now on; any thread.
absl::Status SetLogLevel(std::string_view name);

}  // namespace moed
