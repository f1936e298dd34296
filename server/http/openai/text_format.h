// What an answer's text is held to, in the words of OpenAI and of vLLM.
#pragma once

#include <span>
#include <vector>

#include "absl/status/status.h"
#include "moe/v1/inference.pb.h"
#include "server/http/api/answer.h"
#include "server/http/api/api_error.h"
#include "server/http/api/parameters.h"
#include "server/http/openai/tools.h"

namespace moed::http {

// {"type": "text"}, which holds it to nothing, or what it is held to. Errors begin with the place.
absl::Status ReadTextFormat(const Json& value, Layout layout, moe::v1::OutputFormat& format);

// response_format, and what vLLM has beside it. Of all of them one may say something.
std::span<const Parameter<AnswerOptions>> TextFormatParameters();
// How the daemon's fields of a format are called where one of these said it.
std::vector<FieldName> TextFormatNames(const AnswerOptions& options);

}  // namespace moed::http
