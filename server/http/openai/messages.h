// Messages of /v1/chat/completions, as the daemon takes them.
#pragma once

#include "absl/status/status.h"
#include "moe/v1/inference.pb.h"
#include "server/http/json/bounded_json.h"

namespace moed::http {

// Errors begin with the place: "[3].content[0].type: ...". What a role may say is for the daemon and the model's template to
// decide.
absl::Status ReadMessages(const Json& messages, moe::v1::ChatRequest& request);

}  // namespace moed::http
