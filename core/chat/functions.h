// The functions that every template knows. One row for each.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "core/chat/arguments.h"
#include "core/chat/value.h"

namespace moed::chat {

class Run;

struct GlobalFunction {
  std::string_view name;
  std::string_view parameters;
  absl::StatusOr<Value> (*run)(Run& run, const Arguments& arguments);
};

const GlobalFunction* FindGlobalFunction(std::string_view name);
absl::StatusOr<Value> NewGlobalFunction(Run& run, const GlobalFunction& function);
// Jinja has it and this engine has not.
bool IsMissingFunction(std::string_view name);
// The words of a namespace for an attribute that it may not have.
absl::Status CheckNamespaceName(std::string_view name);

}  // namespace moed::chat
