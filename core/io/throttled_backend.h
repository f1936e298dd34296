// A slower device, for trying one out: a decorator of any ReadBackend.
#pragma once

#include <memory>

#include "core/base/clock.h"
#include "core/io/read_backend.h"

namespace moed {

// Reads as from a device that takes one read after the other, in the order in which they are submitted, each for bytes /
// `bytes_per_second` (> 0): a read is answered no earlier than that after it was submitted or the one before it was due,
// whichever is later, and never before `device` itself has answered it and those before it. `clock` runs at the speed of real
// time.
std::unique_ptr<ReadBackend> MakeThrottledBackend(std::unique_ptr<ReadBackend> device, double bytes_per_second,
                                                  const Clock& clock);

}  // namespace moed
