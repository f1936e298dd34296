// Which states the rows of a block go through.
#pragma once

#include <span>

#include "core/model/step.h"

namespace moed {

// The block's rows in scratch.state_runs, a run for each chunk, with its state of the layer, a recurrent one, from float `offset`
// on.
std::span<const StateRun> PlanStateRuns(Step& step, LayerId layer, RowBlock block, int64_t offset);

}  // namespace moed
