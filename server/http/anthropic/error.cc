#include "server/http/anthropic/error.h"

#include <string>
#include <string_view>

#include "core/base/status.h"

namespace moed::http {
namespace {

std::string_view ErrorType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

// Clients look for these words, and for both numbers.
std::string MessageOf(const ApiError& error) {
  if (!error.beyond_context) return error.message;
  const PromptBeyondContext& beyond = *error.beyond_context;
  return StrCat("prompt is too long: ", beyond.prompt_tokens, " tokens > ", beyond.most_tokens(), " maximum",
                beyond.counted ? "" : " (and more that were not counted)");
}

}  // namespace

Json AnthropicErrorJson(const ApiError& error) {
  return {{"type", "error"}, {"error", {{"type", ErrorType(error.status)}, {"message", MessageOf(error)}}}};
}

HttpReply AnthropicError(const ApiError& error) {
  HttpReply reply{.status = error.status, .body = Dumped(AnthropicErrorJson(error))};
  AddRetryAfter(error, reply);
  return reply;
}

Json AnthropicUsage(int prompt_tokens, int cached_tokens, int output_tokens) {
  return {{"input_tokens", prompt_tokens - cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", cached_tokens},
          {"output_tokens", output_tokens}};
}

}  // namespace moed::http
