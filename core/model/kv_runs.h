// Which pages the rows of a block lie in.
#pragma once

#include <span>

#include "core/model/step.h"

namespace moed {

enum class RowsSee : uint8_t {
  kUpToTheirOwn,  // positions behind a source, if there is one; those of a prefix see all of it
  kTheSource,     // all of it
};

// Runs of the block's rows from `first` on, as many as there are page pointers for; returns the next row.
int PlanRuns(Step& step, LayerId layer, RowBlock block, int first, std::span<const KvRun>& runs,
             RowsSee see = RowsSee::kUpToTheirOwn);

}  // namespace moed
