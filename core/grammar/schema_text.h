// JSON schemas as read, and what their keywords say when several hold at once.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace moed::grammar {

using Json = nlohmann::ordered_json;

// INVALID_ARGUMENT for what is no JSON, or nested too deep.
absl::StatusOr<Json> ReadSchema(std::string_view text);

// "at /properties/x: ", for messages.
std::string Place(const std::string& path);

enum class Keyword : uint8_t { kAnnotation, kAssertion, kUnknown };
Keyword KindOf(std::string_view name);

// A schema for what both accept; both are objects. INVALID_ARGUMENT "at PATH: ..." where that cannot be said with the keywords
// that are supported.
absl::StatusOr<Json> Both(const Json& one, const Json& other, const std::string& path);

// The schema at "#/$defs/x". Null where there is none.
const Json* Referred(const Json& root, std::string_view reference);

}  // namespace moed::grammar
