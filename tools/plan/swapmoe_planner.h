// moed-plan slots: SwapMoE's memory planning (sections 3.4 and 3.5) measured on a store and a calibration text.
#pragma once

#include <memory>

#include "tools/plan/planner.h"

namespace moed {

std::unique_ptr<Planner> MakeSlotsPlanner();

}  // namespace moed
