// What lies behind a dot or in brackets.
#pragma once

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/chat/value.h"

namespace moed::chat {

class Run;

// value.name: a method, else an item. Undefined where there is neither; fails only for an undefined value.
absl::StatusOr<Value> Attribute(Run& run, const Value& value, std::string_view name);
// value[key]: an item, else a method.
absl::StatusOr<Value> Item(Run& run, const Value& value, const Value& key);

struct SliceBounds {
  std::optional<Value> start, stop, step;
};
absl::StatusOr<Value> Slice(Run& run, const Value& value, const SliceBounds& bounds);

}  // namespace moed::chat
