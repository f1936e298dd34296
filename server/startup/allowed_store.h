// Which stores a caller over the network may have loaded.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace moed {

// The path to open for what a caller named: `at_start`, the store of the start (also ""), or a file in `folder` (--models-folder;
// "": none), relative to it or as a whole path. Links are followed before the folder is asked for. PERMISSION_DENIED for all
// else, whether it is there or not; NOT_FOUND for what is missing in the folder; INVALID_ARGUMENT for what is no file.
absl::StatusOr<std::string> AllowedStore(std::string_view named, const std::string& at_start, const std::string& folder);

}  // namespace moed
