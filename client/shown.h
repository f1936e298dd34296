// What came from outside (of servers, models, other clients) as it is shown to people. On a terminal it steers nothing: control
// characters (C0, DEL, C1) are escapes, what is no UTF-8 is U+FFFD. Everywhere else it is byte for byte what came.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace moed {

std::string LineOn(std::FILE* stream, std::string_view text);  // a name: newlines and tabs are escaped, too
std::string TextOn(std::FILE* stream, std::string_view text);  // an answer or a message: they stay

}  // namespace moed
