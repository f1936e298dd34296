// What OpenAI's answers share: errors, usage, ends, events.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "moe/v1/inference.pb.h"
#include "server/http/api/answer.h"
#include "server/http/api/api_error.h"
#include "server/http/json/bounded_json.h"
#include "server/http/transport/exchange.h"

namespace moed::http {

Json AnswerObject(const AnswerIdentity& identity, std::string_view object);

HttpReply OpenAiError(const ApiError& error);
Json OpenAiErrorJson(const ApiError& error);

// Adds "session_tokens" where the answer belongs to a session.
void AddSession(const moe::v1::Finish& finish, Json& object);
// Adds "stop_reason", vLLM's name, to the choice that ended because the context is full.
void AddStopReason(const moe::v1::Finish* finish, Json& choice);

// "stop", "length", "tool_calls"; null where the answer has not ended.
Json FinishReasonJson(const moe::v1::Finish* finish);
Json UsageJson(const moe::v1::Usage& usage);
// Each with its logprob and its likeliest alternatives.
Json TokensJson(const google::protobuf::RepeatedPtrField<moe::v1::TokenLogprob>& tokens);

std::string Event(const Json& json);  // "data: {...}\n\n"
inline constexpr std::string_view kLastEvent = "data: [DONE]\n\n";

}  // namespace moed::http
