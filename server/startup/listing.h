// moed --list.
#pragma once

#include <string>

namespace moed {

// Every row of every table that something can be added to.
std::string ListTables();

}  // namespace moed
