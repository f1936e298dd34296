// Jinja's tests: value is name(arguments). One row for each.
#pragma once

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/chat/arguments.h"
#include "core/chat/value.h"

namespace moed::chat {

class Run;

struct Test {
  std::string_view name;
  std::string_view parameters;
  absl::StatusOr<bool> (*run)(Run& run, const Value& value, const Arguments& arguments);
};

const Test* FindTest(std::string_view name);
absl::StatusOr<bool> ApplyTest(Run& run, const Test& test, const Value& value, Call call);
std::vector<std::string_view> TestNames();

}  // namespace moed::chat
