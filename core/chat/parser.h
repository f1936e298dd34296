// A template's text to its syntax.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "core/chat/syntax.h"

namespace moed::chat {

// INVALID_ARGUMENT with line and construct for what is no template, or uses what Jinja or this engine does not know. Filters and
// tests that nobody knows are accepted within {% if %} and "a if b", as Jinja does, and listed in `unknown`.
absl::StatusOr<Syntax> Parse(std::string_view source);

}  // namespace moed::chat
