// Whether this process may use io_uring at all, whatever it reads.
#pragma once

#include "absl/status/status.h"

namespace moed {

// OK where this kernel lets this process have rings; else why not, as the read backend says it.
absl::Status CheckIoUring();

}  // namespace moed
