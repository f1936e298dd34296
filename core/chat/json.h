// JSON to the values of a template.
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/chat/value.h"

namespace moed::chat {

// As Python's json.loads: the last of equal keys wins. INVALID_ARGUMENT with the byte for what is no JSON, for numbers of more
// than 127 bits and for lists and dicts more than 100 deep.
absl::StatusOr<Value> ValueFromJson(std::string_view json);
// The same of a stranger: texts are foreign (marked_text.h), and what the values hold is taken out of `room`. RESOURCE_EXHAUSTED
// where there is not enough.
absl::StatusOr<Value> ForeignFromJson(std::string_view json, size_t& room);

}  // namespace moed::chat
