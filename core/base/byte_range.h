// Bytes of a text.
#pragma once

#include <cstddef>

namespace moed {

struct ByteRange {
  size_t begin = 0;
  size_t end = 0;  // one past the last

  bool operator==(const ByteRange&) const = default;
};

}  // namespace moed
