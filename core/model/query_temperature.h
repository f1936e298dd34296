// What multiplies queries by their positions.
#pragma once

#include "core/model/step.h"

namespace moed {

// Of a block's rows, (rows, width), by spec.temperature.
void ScaleQueries(const Step& step, RowBlock block, int width, float* queries);

}  // namespace moed
