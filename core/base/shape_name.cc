#include "core/base/shape_name.h"

#include "core/base/status.h"

namespace moed {

std::string ShapeName(std::span<const uint64_t> shape) {
  return StrCat("(", JoinNames(shape, [](uint64_t extent) { return extent; }), ")");
}

}  // namespace moed
