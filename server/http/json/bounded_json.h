// JSON from strangers.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace moed::http {

// Members keep their order: a model sees the schema of a tool as its author wrote it.
using Json = nlohmann::ordered_json;

std::string Dumped(const Json& json);  // what is no UTF-8 replaced by U+FFFD

struct JsonLimits {
  int depth = 64;                          // of arrays and objects in one another
  size_t members = 2048;                   // of an object
  size_t memory_bytes = size_t{32} << 20;  // that the values take, about
};

// INVALID_ARGUMENT with the place of the first error: syntax, ill-formed UTF-8, a name that an object has twice, a number that a
// double cannot hold, what is beyond the limits.
absl::StatusOr<Json> ParseJson(std::string_view text, const JsonLimits& limits = {});

}  // namespace moed::http
