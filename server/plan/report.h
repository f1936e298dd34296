// What was planned, as text and as JSON (docs/planning.md).
#pragma once

#include <string>

#include "server/plan/outlook.h"

namespace moed {

std::string PlanText(const PlannedModel& model, const MachineSpeed& machine, const Outlook& outlook);
std::string PlanJson(const PlannedModel& model, const MachineSpeed& machine, const Outlook& outlook);  // one object, indented

}  // namespace moed
