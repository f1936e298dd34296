// Parameters that all APIs but Anthropic's share, with the names that OpenAI and vLLM gave them, and what that one's are read by.
#pragma once

#include <span>

#include "server/http/api/answer.h"
#include "server/http/api/parameters.h"

namespace moed::http {

std::span<const Parameter<AnswerOptions>> AnswerParameters();
absl::StatusOr<moe::v1::Priority> PriorityOf(const Json& value);  // "high", "normal" or "low"
// An array of texts that end an answer, no more than the daemon takes.
absl::Status ReadStopStrings(const Json& value, moe::v1::Stopping& stopping);

}  // namespace moed::http
