// moed-plan all: every other plan, one after the other, into one folder.
#pragma once

#include <memory>

#include "tools/plan/planner.h"

namespace moed {

std::unique_ptr<Planner> MakeAllPlanner();

}  // namespace moed
