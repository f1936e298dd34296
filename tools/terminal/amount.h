// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace moed {

std::string CountText(double count);      // "12", "3.1"
std::string SecondsText(double seconds);  // "0:07", "1:02:03"
std::string Grouped(uint64_t number);     // "1,234,567"

}  // namespace moed
