// What OpenAI's answers share: errors, usage, ends, events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "grpcpp/support/status.h"
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

// The choices of one answer: of which one is spoken, what all of them took, and those that are whole before the last one is.
class Choices {
 public:
  // Of each prompt so many.
  Choices(size_t prompts, int each) : each_(static_cast<size_t>(each)), kept_(prompts * each_) {}

  size_t count() const { return kept_.size(); }
  void Select(size_t choice) { selected_ = choice; }
  size_t selected() const { return selected_; }
  size_t prompt() const { return selected_ / each_; }  // of the one that is selected

  // A choice has ended. Tokens of a prompt count once, whatever the number of its choices.
  void AddUsage(const moe::v1::Usage& usage);
  const moe::v1::Usage& usage() const { return usage_; }

  // The selected one. RESOURCE_EXHAUSTED where all of them take too much.
  grpc::Status Keep(const Json& choice);
  size_t kept_bytes() const { return kept_bytes_; }
  // `answer`, with this one and all that were kept.
  std::string Whole(const Json& answer, const Json& last);

 private:
  const size_t each_;
  std::vector<std::string> kept_;
  size_t kept_bytes_ = 0;
  size_t selected_ = 0;
  moe::v1::Usage usage_;
};

std::string Event(const Json& json);  // "data: {...}\n\n"
inline constexpr std::string_view kLastEvent = "data: [DONE]\n\n";

}  // namespace moed::http
