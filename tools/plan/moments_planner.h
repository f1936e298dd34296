// moed-plan moments: what experts read of a text, for moed-pack --calibration.
#pragma once

#include <memory>

#include "tools/plan/planner.h"

namespace moed {

std::unique_ptr<Planner> MakeMomentsPlanner();

}  // namespace moed
