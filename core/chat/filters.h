// Jinja's filters: value | name(arguments). One row for each.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/chat/arguments.h"
#include "core/chat/value.h"

namespace moed::chat {

class Run;

struct Filter {
  std::string_view name;
  std::string_view parameters;  // beside the value, as Arguments::Bind takes them
  absl::StatusOr<Value> (*run)(Run& run, const Value& value, const Arguments& arguments);
};

const Filter* FindFilter(std::string_view name);
absl::StatusOr<Value> ApplyFilter(Run& run, const Filter& filter, const Value& value, Call call);
// Jinja has it and this engine has not: a template that uses it is refused.
bool IsMissingFilter(std::string_view name);
std::vector<std::string_view> FilterNames();

// The table's parts.
std::span<const Filter> TextFilters();
std::span<const Filter> NumberFilters();
std::span<const Filter> SequenceFilters();
std::span<const Filter> OrderFilters();
std::span<const Filter> LazyFilters();

// The attribute of an item that a filter was given: "a.b.0" or a number; null: the item itself. What is undefined on the way is
// `otherwise`, where there is one.
absl::StatusOr<Value> AttributeOf(Run& run, Value item, const Value* attribute, const Value* otherwise = nullptr);
// A text in lower case; anything else as it is.
absl::StatusOr<Value> WithoutCase(Run& run, const Value& value);

}  // namespace moed::chat
