// Routing of a given shape made by rules, where nobody has recorded any: to see what bookkeeping costs, not what it is worth.
#pragma once

#include <cstddef>

#include "bench/replay/routing_trace_reader.h"

namespace moed {

// `sequences`, each of so many tokens. Tokens come back as words do; half of a token's choices in a layer are its own, a quarter
// are those of the token before, the rest any. Same arguments, same trace. `shape` has at least as many experts as top_k.
RoutingTrace SyntheticTrace(const RoutingShape& shape, size_t tokens, size_t sequences = 1);

}  // namespace moed
