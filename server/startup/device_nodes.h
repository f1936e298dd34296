// The files in /dev that CUDA's library opens.
#pragma once

#include <string>
#include <vector>

#include "server/startup/config.h"

namespace moed {

// Where a device is asked for by name and a file of NVIDIA's is missing: has nvidia-modprobe make them, as CUDA's library would,
// which can start no program from within the sandbox. Nothing where that program is not installed. Before there are threads.
void MakeDeviceNodes(const Config& config);

// Numbers of the cards that the driver lists in `cards` (/proc/driver/nvidia/gpus) and that have no file nvidiaNUMBER in
// `nodes` (/dev).
std::vector<std::string> CardsWithoutNode(const std::string& cards, const std::string& nodes);

}  // namespace moed
