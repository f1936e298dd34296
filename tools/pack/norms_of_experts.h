// The norms that a store keeps of its experts (core/store/expert_norms.h): from the weights as they were packed.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/store/description.h"

namespace moed {

// Sum of the squares of a packed matrix's weights, row after row. `row` is scratch.
double SumOfSquares(FormatId format, std::span<const std::byte> packed, int rows, int cols, std::vector<float>& row);

}  // namespace moed
