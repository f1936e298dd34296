// moed-plan widths: EdgeMoE's expert-wise bit widths (widths_search.h) measured on a store and a calibration text.
#pragma once

#include <memory>

#include "tools/plan/planner.h"

namespace moed {

std::unique_ptr<Planner> MakeWidthsPlanner();

}  // namespace moed
