// What a tool says of itself in the APIs of OpenAI and Anthropic alike: rows of their tables of parameters.
#pragma once

#include "absl/status/status.h"
#include "moe/v1/inference.pb.h"
#include "server/http/api/parameters.h"

namespace moed::http {

absl::Status ApplyToolSchema(const Json& value, moe::v1::Tool& tool);  // of its arguments
// They change nothing here, and may have one value.
absl::Status ApplyToolCallers(const Json& value, moe::v1::Tool& tool);
absl::Status ApplyToolDeferLoading(const Json& value, moe::v1::Tool& tool);

}  // namespace moed::http
