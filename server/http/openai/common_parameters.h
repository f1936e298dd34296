// Parameters that /v1/completions and /v1/chat/completions share.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "server/http/api/answer.h"
#include "server/http/api/parameters.h"

namespace moed::http {

std::span<const Parameter<AnswerOptions>> CommonParameters();
// How max_new_tokens is called: as it was given.
std::string_view LengthName(const AnswerOptions& options);

// Of all prompts of a request together; OpenAI's for one.
inline constexpr int kMostChoices = 128;
// INVALID_ARGUMENT where they are more, or the answer belongs to a session.
absl::Status CheckChoices(const AnswerOptions& options, size_t prompts);

}  // namespace moed::http
