// Files of this process larger than so many bytes are errors of the write, for as long as this lives.
#pragma once

#include <signal.h>

#include <optional>

#include "tests/resource_limit.h"

namespace moed {

class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(signal(SIGXFSZ, SIG_IGN)) { limit_.emplace(RLIMIT_FSIZE, bytes); }
  ~FileSizeLimit() {
    limit_.reset();
    signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  const sighandler_t handler_;
  std::optional<ResourceLimit> limit_;
};

}  // namespace moed
