// Errors and usage as Anthropic's clients expect them.
#pragma once

#include "moe/v1/inference.pb.h"
#include "server/http/api/api_error.h"
#include "server/http/json/bounded_json.h"
#include "server/http/transport/exchange.h"

namespace moed::http {

HttpReply AnthropicError(const ApiError& error);
Json AnthropicErrorJson(const ApiError& error);

// What was in the cache is no input here.
Json AnthropicUsage(int prompt_tokens, int cached_tokens, int output_tokens);

}  // namespace moed::http
