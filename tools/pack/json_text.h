// JSON from files of strangers.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace moed {

// An object. INVALID_ARGUMENT naming `name` and the place for bad syntax, a key that appears twice, what is nested too deep
// (core/base/json_value.h), or anything but an object.
absl::StatusOr<nlohmann::json> ParseJsonObject(const std::string& name, std::string_view text);

// The file whole. NOT_FOUND when it does not exist, INVALID_ARGUMENT when it is larger than `max_bytes`.
absl::StatusOr<std::string> ReadText(const std::string& path, uint64_t max_bytes);

}  // namespace moed
