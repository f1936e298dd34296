// What a processor multiplies and adds at most in floats: multiply-adds in registers alone, in the vectors of a backend.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/base/executor.h"

namespace moed {

// Multiply-adds of floats a second by all threads of the executor, in the widest vectors of the backend's kernels for attention.
// 0: not known for this backend.
double FloatPeak(std::string_view backend, Executor& executor);

}  // namespace moed
