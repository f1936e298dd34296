// The files in /dev that CUDA's library opens.
#pragma once

#include "server/startup/config.h"

namespace moed {

// Where a device is asked for by name and a file of NVIDIA's is missing: has nvidia-modprobe make them, as CUDA's library would,
// which can start no program from within the sandbox. Nothing where that program is not installed. Before there are threads.
void MakeDeviceNodes(const Config& config);

}  // namespace moed
