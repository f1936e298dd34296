// What a processor multiplies at most: each backend's inner loop of each integer format, in registers alone.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/quant/format.h"

namespace moed {

struct Int8Loop {
  std::string_view backend;  // whose inner loop this is; may run where MakeComputeBackend(backend) works
  FormatId format;
  std::string_view instructions;
  int products;  // multiplications of 8-bit codes an iteration
  void (*run)(int64_t iterations);
};

std::span<const Int8Loop> Int8Loops();  // none on processors that are not x86
// The loop of that backend and format, or null.
const Int8Loop* FindInt8Loop(std::string_view backend, FormatId format);

}  // namespace moed
