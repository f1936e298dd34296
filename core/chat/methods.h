// The methods of values: value.strip(). One row for each.
#pragma once

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/chat/arguments.h"
#include "core/chat/value.h"

namespace moed::chat {

class Run;

struct Method {
  std::string_view name;
  std::string_view parameters;  // as Arguments::Bind takes them
  absl::StatusOr<Value> (*run)(Run& run, const Value& self, const Arguments& arguments);
};

// Bound to `value`; nullopt where its type has no such method.
absl::StatusOr<std::optional<Value>> MethodOf(Run& run, const Value& value, std::string_view name);
// Would change a list or a dict, which templates may not.
bool IsUnsafeMethod(const Value& value, std::string_view name);
// A method that Python has and this engine has not: a template that calls it is refused.
bool IsMissingMethod(std::string_view name);

// str.replace: the first `most` occurrences, all of them for a negative number. A markup stays one.
absl::StatusOr<Value> ReplaceIn(Run& run, const Value& text, std::string_view old, const MarkedText& by, int64_t most);

const Method* FindTextMethod(std::string_view name);
const Method* FindContainerMethod(const Value& value, std::string_view name);

}  // namespace moed::chat
