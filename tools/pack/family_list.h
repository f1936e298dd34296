// What moed-pack can pack: families with the formats that they come in.
#pragma once

#include <string>

namespace moed {

std::string FamiliesText();
std::string FamiliesJson();  // one object, indented, with a newline

}  // namespace moed
