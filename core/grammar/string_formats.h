// Formats of strings that JSON schemas name.
#pragma once

#include <string>
#include <string_view>

namespace moed::grammar {

// An expression (core/grammar/regex.h) that matches strings of a format, whole; null where `format` is none that is held. Every
// string that it matches is of the format, but not every one of the format is matched:
//   - date-time, date, time: RFC 3339, from the year 1 on, without leap seconds, "T" and "Z" large, up to 9 digits of a second;
//   - duration: RFC 3339, numbers of up to 6 digits;
//   - hostname: RFC 1123, up to 5 labels of up to 49 characters, no two hyphens in a row, the last beginning with a letter;
//   - email: RFC 5321, dots between atoms, up to 63 characters, at a host of 2 to 4 labels of up to 45, the last of letters;
//   - ipv4; ipv6: RFC 4291, without dotted decimals; uuid: RFC 4122.
const std::string* FormatPattern(std::string_view format);

}  // namespace moed::grammar
