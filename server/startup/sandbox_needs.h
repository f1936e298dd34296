// What the daemon still needs of files, addresses and devices once it knows its configuration.
#pragma once

#include "server/sandbox/sandbox.h"
#include "server/startup/config.h"

namespace moed {

// Models that are loaded later, what is read anew on SIGHUP and what is written at the end are among it. Devices are where
// --backend allows one and their files are there.
SandboxNeeds SandboxNeedsOf(const Config& config);

}  // namespace moed
