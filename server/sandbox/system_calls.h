// System calls that the process may still make, by the kernel's seccomp.
#pragma once

#include "absl/status/status.h"

namespace moed {

// OK where the kernel takes filters for all threads of a process at once.
absl::Status CheckSeccomp();

struct SystemCallNeeds {
  bool io_uring = false;
  bool devices = false;  // a driver's library makes calls of its own
};

// Calls that a server makes go on. Those that make another program, process, namespace or user of it, or reach into others, fail
// with EPERM. What is known to neither table fails with ENOSYS, as if the kernel lacked it, which is what C libraries are ready
// for; with `devices` it goes on. Calls of another architecture, which are other calls under the same numbers, end the process
// with SIGSYS: no compiler made them. For all threads, those to come too.
absl::Status FilterSystemCalls(const SystemCallNeeds& needs);

// Besides: new sockets, listening and connecting fail with EPERM; with `devices` unix sockets go on, by which drivers talk to
// services of theirs. Connections are taken from sockets that listen already.
absl::Status FilterSockets(const SystemCallNeeds& needs);

}  // namespace moed
