// For as long as this lives the process may map so many bytes more: the stacks of a few threads, each of 8 MiB.
#pragma once

#include <unistd.h>

#include <fstream>

#include "tests/resource_limit.h"

namespace moed {

class AddressSpaceLimit : ResourceLimit {
 public:
  explicit AddressSpaceLimit(rlim_t more_bytes) : ResourceLimit(RLIMIT_AS, MappedBytes() + more_bytes) {}

 private:
  static rlim_t MappedBytes() {
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
  }
};

}  // namespace moed
