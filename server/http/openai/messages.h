// Messages and tools of /v1/chat/completions, as the daemon takes them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "moe/v1/inference.pb.h"
#include "server/http/json/bounded_json.h"

namespace moed::http {

// Errors begin with the place: "[3].content[0].type: ...". What a role may say is for the daemon and the model's template to
// decide.
absl::Status ReadMessages(const Json& messages, moe::v1::ChatRequest& request);
absl::Status ReadTools(const Json& tools, moe::v1::ChatRequest& request);
// `allowed`: names of the tools that may be called, where the choice says some.
absl::Status ReadToolChoice(const Json& choice, moe::v1::ToolChoice& out, std::optional<std::vector<std::string>>& allowed);
// Leaves out the other tools. The error begins with the parameter.
absl::Status KeepAllowedTools(const std::vector<std::string>& allowed, moe::v1::ChatRequest& request);

}  // namespace moed::http
