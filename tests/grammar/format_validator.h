// Whether a string is of a format that JSON schemas name, as its RFC says; other formats say nothing.
#pragma once

#include <string>

namespace moed::grammar {

bool IsOfFormat(const std::string& text, const std::string& format);

}  // namespace moed::grammar
