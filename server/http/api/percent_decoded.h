// Names in paths.
#pragma once

#include <string>
#include <string_view>

namespace moed::http {

// "a%2Fb" is "a/b" (RFC 3986, section 2.1). What is no such escape stands for itself.
std::string PercentDecoded(std::string_view text);

}  // namespace moed::http
