#pragma once

#include <string>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace moed {

// Writes `json` beside `path` and puts it in its place once it is whole.
absl::Status WritePlanFile(const std::string& path, const nlohmann::ordered_json& json);

}  // namespace moed
