#include "server/http/openai/reply.h"

#include <utility>

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
    case 409:
      return "conflict_error";
    case 429:
      return "rate_limit_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

// A token may be half a character: its bytes stand beside its text.
Json TokenJson(const moe::v1::TokenLogprob& token) {
  Json bytes = Json::array();
  for (const unsigned char c : token.token()) bytes.push_back(c);
  return {{"token", token.token()}, {"logprob", token.logprob()}, {"bytes", bytes}};
}

Json TextOrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

// Clients look for the first sentence.
std::string MessageOf(const ApiError& error) {
  if (!error.beyond_context) return error.message;
  const PromptBeyondContext& beyond = *error.beyond_context;
  return StrCat("This model's maximum context length is ", beyond.context_tokens, " tokens. However, your prompt has ",
                beyond.prompt_tokens, beyond.counted ? "" : " or more", " tokens, of which ", beyond.most_tokens(),
                " leave room for an answer.");
}

}  // namespace

Json AnswerObject(const AnswerIdentity& identity, std::string_view object) {
  return {{"id", identity.id}, {"object", object}, {"created", identity.created_unix_seconds}, {"model", identity.model}};
}

Json OpenAiErrorJson(const ApiError& error) {
  return {{"error",
           {{"message", MessageOf(error)},
            {"type", ErrorType(error.status)},
            {"param", TextOrNull(error.parameter)},
            {"code", TextOrNull(error.code)}}}};
}

HttpReply OpenAiError(const ApiError& error) {
  HttpReply reply{.status = error.status, .body = Dumped(OpenAiErrorJson(error))};
  AddRetryAfter(error, reply);
  return reply;
}

void AddSession(const moe::v1::Finish& finish, Json& object) {
  if (finish.session_tokens() > 0) object["session_tokens"] = finish.session_tokens();
}

void AddStopReason(const moe::v1::Finish* finish, Json& choice) {
  if (finish != nullptr && finish->reason() == moe::v1::FINISH_REASON_CONTEXT) choice["stop_reason"] = "context";
}

Json FinishReasonJson(const moe::v1::Finish* finish) {
  if (finish == nullptr) return nullptr;
  switch (finish->reason()) {
    case moe::v1::FINISH_REASON_STOP:
    case moe::v1::FINISH_REASON_STOP_STRING:
      return "stop";
    case moe::v1::FINISH_REASON_TOOL_CALLS:
      return "tool_calls";
    default:
      return "length";
  }
}

Json UsageJson(const moe::v1::Usage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens()},
          {"completion_tokens", usage.completion_tokens()},
          {"total_tokens", usage.prompt_tokens() + usage.completion_tokens()},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens()}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens()}}}};
}

void Choices::AddUsage(const moe::v1::Usage& usage) {
  usage_.set_completion_tokens(usage_.completion_tokens() + usage.completion_tokens());
  usage_.set_reasoning_tokens(usage_.reasoning_tokens() + usage.reasoning_tokens());
  if (selected_ % each_ != 0) return;
  usage_.set_prompt_tokens(usage_.prompt_tokens() + usage.prompt_tokens());
  usage_.set_cached_tokens(usage_.cached_tokens() + usage.cached_tokens());
}

grpc::Status Choices::Keep(const Json& choice) {
  constexpr size_t kMostBytes = size_t{16} << 20;
  kept_[selected_] = Dumped(choice);
  kept_bytes_ += kept_[selected_].size();
  if (kept_bytes_ <= kMostBytes) return grpc::Status::OK;
  return {grpc::StatusCode::RESOURCE_EXHAUSTED, StrCat("the choices take more than the ", kMostBytes,
                                                       " bytes that one answer may: have it streamed, or ask for less at once")};
}

std::string Choices::Whole(const Json& answer, const Json& last) {
  kept_[selected_] = Dumped(last);
  std::string body = Dumped(answer);
  body.back() = ',';  // of the object's end
  body += "\"choices\":[";
  for (size_t i = 0; i < kept_.size(); ++i) {
    if (i > 0) body += ',';
    body += kept_[i];
    kept_[i] = std::string();
  }
  return body + "]}";
}

Json TokensJson(const google::protobuf::RepeatedPtrField<moe::v1::TokenLogprob>& tokens) {
  Json list = Json::array();
  for (const moe::v1::TokenLogprob& token : tokens) {
    Json json = TokenJson(token);
    json["top_logprobs"] = Json::array();
    for (const moe::v1::TokenLogprob& other : token.top()) json["top_logprobs"].push_back(TokenJson(other));
    list.push_back(std::move(json));
  }
  return list;
}

std::string Event(const Json& json) { return StrCat("data: ", Dumped(json), "\n\n"); }

}  // namespace moed::http
