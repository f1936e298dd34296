#include "core/model/query_temperature.h"

#include <algorithm>

namespace moed {

// Positions follow each other: rows with the same factor are scaled together.
void ScaleQueries(const Step& step, RowBlock block, int width, float* queries) {
  const QueryTemperature& temperature = *step.spec.temperature;
  const auto positions = step.batch.positions().subspan(static_cast<size_t>(block.begin), static_cast<size_t>(block.count));
  for (auto first = positions.begin(); first != positions.end();) {
    const double factor = temperature.FactorOf(*first);
    const auto end =
        std::find_if(first, positions.end(), [&](int32_t position) { return temperature.FactorOf(position) != factor; });
    const int64_t row = first - positions.begin();
    if (factor != 1) step.backend.Scale(queries + row * width, static_cast<float>(factor), (end - first) * int64_t{width});
    first = end;
  }
}

}  // namespace moed
