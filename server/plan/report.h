// What was planned, as text and as JSON (docs/planning.md).
#pragma once

#include <string>

#include "server/plan/outlook.h"

namespace moed {

std::string PlanText(const PlannedModel& model, const MachineSpeed& machine, const Outlook& outlook);
std::string PlanJson(const PlannedModel& model, const MachineSpeed& machine, const Outlook& outlook);  // one object, indented

// With a device that has memory of its own: both plans, and no speed, since no device was measured. `memory` has a device budget.
std::string DevicePlanText(const PlannedModel& model, const MemoryPlan& memory);
std::string DevicePlanJson(const PlannedModel& model, const MemoryPlan& memory);

}  // namespace moed
