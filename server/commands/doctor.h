// moed doctor: what this machine gives.
#pragma once

#include <span>
#include <string>

namespace moed {

int CheckMachine(std::span<const std::string> arguments);

}  // namespace moed
