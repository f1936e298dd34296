// Tools and the choice among them, as the daemon takes them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "moe/v1/inference.pb.h"
#include "server/http/api/parameters.h"
#include "server/http/json/bounded_json.h"

namespace moed::http {

// Where the members of something that has a type stand: in an object that is named after the type, as /v1/chat/completions has
// them, or beside the type, as /v1/responses does.
enum class Layout { kNested, kFlat };

template <class Draft>
absl::Status OnlyFunction(const Json& value, Draft&) {
  return OnlyValue(value, "function", "other tools are not offered");
}

// Errors begin with the place: "[3].function.name: ...".
absl::Status ReadTools(const Json& tools, Layout layout, moe::v1::ChatRequest& request);
// `allowed`: names of the tools that may be called, where the choice says some.
absl::Status ReadToolChoice(const Json& choice, Layout layout, moe::v1::ToolChoice& out,
                            std::optional<std::vector<std::string>>& allowed);
// Leaves out the other tools. The error begins with the parameter.
absl::Status KeepAllowedTools(const std::vector<std::string>& allowed, Layout layout, moe::v1::ChatRequest& request);

}  // namespace moed::http
