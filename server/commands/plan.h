// moed plan: what serving a model takes and gives.
#pragma once

#include <span>
#include <string>

namespace moed {

int PlanModel(std::span<const std::string> arguments);

}  // namespace moed
