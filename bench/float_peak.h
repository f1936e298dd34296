// What a processor multiplies and adds at most in floats: in registers alone, in vectors as a backend's attention has them.
#pragma once

#include <string_view>

#include "core/base/executor.h"

namespace moed {

// Multiplies and adds for a millisecond or so, on all threads of the executor. How often; 0: not known for this backend.
double RunMultiplyAdds(std::string_view backend, Executor& executor);

}  // namespace moed
