// Pieces of work that threads make side by side and that are taken in order, one at a time.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "core/base/executor.h"

namespace moed {

// `make(piece, slot)` runs on any thread, several at once; `take(piece, slot)` for one piece after the other, on any thread too,
// while others are made. A slot, below `window`, is a piece's own from its making until it was taken, so at most `window` pieces
// wait. The first error of `take` ends it, once what is being made is made. No thread waits while there is something that it
// may do.
absl::Status WorkInOrder(Executor& executor, int64_t pieces, int window, absl::FunctionRef<void(int64_t piece, int slot)> make,
                         absl::FunctionRef<absl::Status(int64_t piece, int slot)> take);

}  // namespace moed
