#include "core/model/state_runs.h"

#include <algorithm>

namespace moed {

std::span<const StateRun> PlanStateRuns(Step& step, LayerId layer, RowBlock block, int64_t offset) {
  const std::span<StateRun> runs = step.scratch.state_runs;
  size_t used = 0;
  for (int row = 0; row < block.count;) {
    const BatchChunk& at = step.batch.chunk_of(block.begin + row);
    const int end = std::min(block.count, at.first_row + at.rows() - block.begin);
    float* state = reinterpret_cast<float*>(step.kv.State(*at.chunk->kv, layer)) + offset;
    runs[used++] = {.state = state, .position = step.batch.positions()[block.begin + row], .tokens = end - row};
    row = end;
  }
  return runs.first(used);
}

}  // namespace moed
