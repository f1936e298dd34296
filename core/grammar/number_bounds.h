// What JSON schemas say of numbers.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/grammar/number_range.h"
#include "core/grammar/schema_text.h"

namespace moed::grammar {

// Nullopt where a schema says nothing of them. What is within the bounds is so as a double too; where a bound has more places
// than are held, it lies within the bound. INVALID_ARGUMENT "at PATH: ...".
absl::StatusOr<std::optional<NumberBounds>> ReadNumberBounds(const Json& schema, bool whole, const std::string& path);

}  // namespace moed::grammar
