// Messages, their blocks, and tools of /v1/messages, as the daemon takes them.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "moe/v1/inference.pb.h"
#include "server/http/json/bounded_json.h"

namespace moed::http {

// Errors begin with the place: "[3].content[0].type: ...". Results of tools are messages of their own; the texts beside them
// follow.
absl::Status ReadAnthropicMessages(const Json& messages, moe::v1::ChatRequest& request);
absl::Status ReadAnthropicTools(const Json& tools, moe::v1::ChatRequest& request);
// A string, or blocks of text that are joined.
absl::Status ReadTextOrBlocks(const Json& value, std::string& text);

}  // namespace moed::http
