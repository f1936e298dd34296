// A process that is the daemon, from its arguments to its exit code.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/startup/routing_source.h"

namespace moed {

// Reads the configuration and serves until a termination signal. Returns the exit code; 2: wrong usage. `more_help`: --help ends
// with it. `routing`: see App. Before the process has other threads.
int RunDaemon(const std::vector<std::string>& arguments, std::string_view more_help, RoutingSource* routing = nullptr);

}  // namespace moed
