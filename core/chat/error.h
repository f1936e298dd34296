// How a template fails. Every failure is INVALID_ARGUMENT with the words that Python's Jinja has for it, but for limits, which
// are RESOURCE_EXHAUSTED.
#pragma once

#include <cstddef>
#include <optional>

#include "absl/status/status.h"
#include "core/base/status.h"

namespace moed::chat {

// What the template itself said with raise_exception(words): exactly these words.
absl::Status Raised(std::string_view words);
bool IsRaised(const absl::Status& status);

// RESOURCE_EXHAUSTED: the text that comes out has become longer than it may.
absl::Status TooLong(size_t most_bytes);
bool IsTooLong(const absl::Status& status);

// The line of the template that was running, where it is known.
std::optional<int> LineOf(const absl::Status& status);
// The same status with this line, unless it has one.
absl::Status AtLine(absl::Status status, int line);

// While parsing: "line 12: words".
template <class... Parts>
absl::Status SyntaxError(int line, const Parts&... parts) {
  return AtLine(InvalidArgument("line ", line, ": ", parts...), line);
}

}  // namespace moed::chat
