// moed-plan hobbit: thresholds and weights of HOBBIT (core/expert/policies/hobbit_calibration.h), from a text.
#pragma once

#include <memory>

#include "tools/plan/planner.h"

namespace moed {

std::unique_ptr<Planner> MakeHobbitPlanner();

}  // namespace moed
