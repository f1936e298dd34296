// The parameters that the APIs know, for --list-parameters.
#pragma once

#include <string>

namespace moed::http {

// A line each: "PATH NAME", the tables of an endpoint one after another.
std::string ParameterList();

}  // namespace moed::http
