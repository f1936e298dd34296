// Words of HTTP, and names for requests.
#pragma once

#include <string>
#include <string_view>

namespace moed::http {

std::string_view StatusText(int status);  // "Not Found" (RFC 9110, section 15)

// 32 hexadecimal digits, drawn at random.
std::string NewRequestId();

}  // namespace moed::http
