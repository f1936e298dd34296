#include "tools/pack/norms_of_experts.h"

#include <numeric>

#include "core/quant/format.h"

namespace moed {

double SumOfSquares(FormatId format, std::span<const std::byte> packed, int rows, int cols, std::vector<float>& row) {
  row.resize(static_cast<size_t>(cols));
  constexpr int kLanes = 8;  // an addition need not wait for the one before
  double lanes[kLanes] = {};
  for (int r = 0; r < rows; ++r) {
    DecodeRow(format, packed.data(), cols, r, row.data());
    int column = 0;
    for (; column + kLanes <= cols; column += kLanes) {
      for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += static_cast<double>(row[column + lane]) * row[column + lane];
    }
    for (; column < cols; ++column) lanes[0] += static_cast<double>(row[column]) * row[column];
  }
  return std::accumulate(lanes, lanes + kLanes, 0.0);
}

}  // namespace moed
