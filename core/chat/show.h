// Values as text: Python's str and repr, and json.dumps.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/chat/value.h"

namespace moed::chat {

class Run;

// What is shown of lists and the like is foreign as a whole where something in them is.
absl::StatusOr<MarkedText> Str(Run& run, const Value& value);
absl::Status AppendStr(Run& run, const Value& value, MarkedText& out);
absl::StatusOr<std::string> Repr(Run& run, const Value& value);

MarkedText Escaped(const Text& text);  // for HTML

struct JsonStyle {
  bool ascii = false;  // what is not ASCII as \uXXXX
  std::optional<std::string> indent;
  std::string item_separator = ", ", key_separator = ": ";
  bool sorted = false;  // by key
};
// Python's words for what JSON cannot hold.
absl::StatusOr<std::string> ToJson(Run& run, const Value& value, const JsonStyle& style);

}  // namespace moed::chat
