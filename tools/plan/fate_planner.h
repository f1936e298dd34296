// moed-plan fate: what Fate measures offline, its low share of a prompt and its shallow depth (core/expert/fidelity/fate_plan.h).
#pragma once

#include <memory>

#include "tools/plan/planner.h"

namespace moed {

std::unique_ptr<Planner> MakeFatePlanner();

}  // namespace moed
