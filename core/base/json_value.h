// Values of JSON in files of users.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/base/status.h"

namespace moed {

// Arrays and objects in one another. The library reads any number of them, but to copy or write a value it calls itself for each.
inline constexpr int kMostJsonDepth = 64;

// Whether a JSON text has more of them; of what is no JSON either answer.
inline bool IsDeepJson(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (in_string && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      in_string = !in_string;
    } else if (!in_string && (text[i] == '[' || text[i] == '{')) {
      if (++depth > kMostJsonDepth) return true;
    } else if (!in_string && (text[i] == ']' || text[i] == '}')) {
      --depth;
    }
  }
  return false;
}

// INVALID_ARGUMENT naming `name` for bad syntax, with the place, and for what is nested too deep.
template <class Json>
absl::StatusOr<Json> ParseForeignJson(std::string_view name, std::string_view text) {
  if (IsDeepJson(text)) return InvalidArgument(name, ": arrays and objects are nested more than ", kMostJsonDepth, " deep");
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const typename Json::exception& error) {
    return InvalidArgument(name, ": ", error.what());
  }
}

// For messages: a value as it stands, cut where it is long; of an array or an object only that it is one, because it may be
// nested deeper than the stack is.
template <class Json>
std::string ShownJson(const Json& json) {
  constexpr size_t kMostBytes = 120;
  if (json.is_structured()) return json.type_name();
  std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > kMostBytes ? StrCat(text.substr(0, kMostBytes), "...") : text;
}

// As it stands there: the library's own conversion cuts off fractions and what is too large. INVALID_ARGUMENT, with `name`, for
// anything but a whole number from `least` to `most`.
template <class Json>
absl::StatusOr<int64_t> WholeNumber(std::string_view name, const Json& json, int64_t least,
                                    int64_t most = std::numeric_limits<int64_t>::max()) {
  const bool beyond = json.is_number_unsigned() && json.template get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
  if (json.is_number_integer() && !beyond) {
    const auto number = json.template get<int64_t>();
    if (number >= least && number <= most) return number;
  }
  return InvalidArgument(name, " is ", ShownJson(json), ", allowed are ", least, " to ", most, ", whole");
}

}  // namespace moed
