// Files and ports that the process may still reach, by the kernel's Landlock (Linux 5.13 and later).
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace moed {

// The version of the kernel's interface; 0: it has none, or it is switched off or filtered away.
int LandlockVersion();

struct LandlockRules {
  std::vector<std::string> readable;  // files, and folders with all that is beneath them; what is not there is left out
  std::vector<std::string> writable;  // likewise: read, made, written and removed
  std::vector<std::string> devices;   // likewise: read, written and controlled
  std::vector<int> listening_ports;   // of TCP
  bool any_listening_port = false;    // instead
  bool connects = false;              // over TCP; sockets may then be bound to port 0 as well
  bool abstract_sockets = false;      // connects to unix sockets without a path that others have made
};

// Whatever the rules do not name is refused with EACCES from here on, to this thread and those that it starts: programs cannot be
// executed at all. Files that are open stay so. What a kernel's version does not know it does not refuse: cutting files before 3,
// TCP before 4, control of devices before 5, sockets and signals before 6. `version` is LandlockVersion's, not 0.
absl::Status FenceByLandlock(const LandlockRules& rules, int version);

}  // namespace moed
