// Where the daemon is to write and may load from, looked at before anything is loaded: what it has learned is not to be lost at
// its end.
#pragma once

#include "absl/status/status.h"
#include "server/startup/config.h"

namespace moed {

// INVALID_ARGUMENT names the flag, and the folder that is missing, is none or may not be written to.
absl::Status CheckFolders(const Config& config);

}  // namespace moed
