// What rendering a template may use.
#pragma once

#include <cstddef>

namespace moed::chat {

struct Limits {
  size_t steps = 20'000'000;        // of evaluation; reading or making a text counts one for each 64 bytes
  int depth = 600;                  // levels of expressions, statements and macros within each other
  size_t output_bytes = 16 << 20;   // of the text that comes out
  size_t memory_bytes = 128 << 20;  // of the values that are alive at once
};

}  // namespace moed::chat
