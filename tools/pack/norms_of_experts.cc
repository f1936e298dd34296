#include "tools/pack/norms_of_experts.h"

#include "core/quant/format.h"

namespace moed {

double SumOfSquares(FormatId format, std::span<const std::byte> packed, int rows, int cols, std::vector<float>& row) {
  row.resize(static_cast<size_t>(cols));
  double squares = 0;
  for (int r = 0; r < rows; ++r) {
    DecodeRow(format, packed.data(), cols, r, row.data());
    for (const float weight : row) squares += static_cast<double>(weight) * weight;
  }
  return squares;
}

}  // namespace moed
