// What OpenAI's answers share: errors, usage, ends, events.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "moe/v1/inference.pb.h"
#include "server/http/api/api_error.h"
#include "server/http/json/bounded_json.h"
#include "server/http/transport/exchange.h"

namespace moed::http {

// What every object of one answer says of it.
struct AnswerIdentity {
  std::string id;  // "cmpl-..."; the daemon's request_id as well
  std::string model;
  int64_t created_unix_seconds = 0;
};
Json AnswerObject(const AnswerIdentity& identity, std::string_view object);

HttpReply OpenAiError(const ApiError& error);
Json OpenAiErrorJson(const ApiError& error);

// "stop", "length", "tool_calls"; null where the answer has not ended.
Json FinishReasonJson(const moe::v1::Finish* finish);
Json UsageJson(const moe::v1::Usage& usage);

std::string Dumped(const Json& json);  // what is no UTF-8 replaced by U+FFFD
std::string Event(const Json& json);   // "data: {...}\n\n"
inline constexpr std::string_view kLastEvent = "data: [DONE]\n\n";

}  // namespace moed::http
