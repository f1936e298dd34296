// Logs of the daemons that `moed run` starts: run-PID.log in the folder of packed models.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace moed {

// This process's.
std::string RunLogPath(const std::string& folder);

// A descriptor to write the log with, locked for as long as any process has it. The caller closes it.
absl::StatusOr<int> OpenRunLog(const std::string& path);

// Removes those whose process is gone and that nobody holds, of whatever namespace of processes.
void RemoveLeftRunLogs(const std::string& folder);

}  // namespace moed
