#include "server/http/anthropic/error.h"

#include <string_view>

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

}  // namespace

Json AnthropicErrorJson(const ApiError& error) {
  return {{"type", "error"}, {"error", {{"type", ErrorType(error.status)}, {"message", error.message}}}};
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
