#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace moed {

std::string ShapeName(std::span<const uint64_t> shape);  // "(32, 192)", for messages

}  // namespace moed
