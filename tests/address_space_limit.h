// For as long as this lives the process may map so many bytes more: the stacks of a few threads, each of 8 MiB.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace moed {

class AddressSpaceLimit {
 public:
  explicit AddressSpaceLimit(rlim_t more_bytes) {
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    EXPECT_EQ(getrlimit(RLIMIT_AS, &before_), 0);
    const rlimit limit{pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + more_bytes, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
  }
  ~AddressSpaceLimit() { EXPECT_EQ(setrlimit(RLIMIT_AS, &before_), 0); }
  AddressSpaceLimit(const AddressSpaceLimit&) = delete;
  AddressSpaceLimit& operator=(const AddressSpaceLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace moed
