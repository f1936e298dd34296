// For as long as this lives the process may have no more of a resource.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace moed {

class ResourceLimit {
 public:
  ResourceLimit(__rlimit_resource_t resource, rlim_t most) : resource_(resource) {
    EXPECT_EQ(getrlimit(resource_, &before_), 0);
    const rlimit limit{most, before_.rlim_max};
    EXPECT_EQ(setrlimit(resource_, &limit), 0);
  }
  ~ResourceLimit() { EXPECT_EQ(setrlimit(resource_, &before_), 0); }
  ResourceLimit(const ResourceLimit&) = delete;
  ResourceLimit& operator=(const ResourceLimit&) = delete;

 private:
  const __rlimit_resource_t resource_;
  rlimit before_{};
};

}  // namespace moed
