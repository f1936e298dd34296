#include "server/http/openai/chat_reply.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/status.h"

namespace moed::http {
namespace {

using moe::v1::ChatResponse;

Json LogprobsJson(const ChatResponse& message) {
  if (message.logprobs().empty()) return nullptr;
  return {{"content", TokensJson(message.logprobs())}, {"refusal", nullptr}};
}

// Of a stream what follows of a call, of a whole answer the call.
Json ToolCallJson(const moe::v1::ToolCallDelta& call, bool streams) {
  Json json = Json::object();
  if (streams) json["index"] = call.index();
  if (!call.id().empty()) json["id"] = call.id();
  if (!call.id().empty()) json["type"] = "function";
  json["function"] = Json::object();
  if (!call.name().empty()) json["function"]["name"] = call.name();
  json["function"]["arguments"] = call.arguments();
  return json;
}

Json ToolCallsJson(const ChatResponse& message, bool streams) {
  Json calls = Json::array();
  for (const auto& call : message.tool_calls()) calls.push_back(ToolCallJson(call, streams));
  return calls;
}

// What a message of a stream brings.
Json DeltaJson(const ChatResponse& message) {
  Json delta = Json::object();
  if (!message.reasoning().empty()) delta["reasoning_content"] = message.reasoning();
  if (!message.text().empty()) delta["content"] = message.text();
  if (!message.tool_calls().empty()) delta["tool_calls"] = ToolCallsJson(message, true);
  return delta;
}

Json MessageJson(const ChatResponse& answer) {
  const bool only_calls = answer.text().empty() && !answer.tool_calls().empty();
  Json message = {{"role", "assistant"}, {"content", only_calls ? Json(nullptr) : Json(answer.text())}, {"refusal", nullptr}};
  if (!answer.reasoning().empty()) message["reasoning_content"] = answer.reasoning();
  if (!answer.tool_calls().empty()) message["tool_calls"] = ToolCallsJson(answer, false);
  return message;
}

const moe::v1::Finish* FinishOf(const ChatResponse& message) { return message.has_finish() ? &message.finish() : nullptr; }

class ChatWriter final : public AnswerWriter<ChatResponse> {
 public:
  ChatWriter(AnswerIdentity identity, const ChatDraft& draft)
      : identity_(std::move(identity)),
        include_usage_(draft.include_usage),
        field_names_(ChatFieldNames(draft)),
        choices_(1, draft.choices),
        begun_(choices_.count()) {}

  void Select(size_t choice) override { choices_.Select(choice); }

  std::string Events(const ChatResponse& message) override {
    if (message.has_finish()) choices_.AddUsage(message.finish().usage());
    std::string events;
    if (!std::exchange(begun_[choices_.selected()], 1))
      events = Chunk({{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
    Json delta = DeltaJson(message);
    if (!delta.empty() || !message.logprobs().empty()) events += Chunk(std::move(delta), LogprobsJson(message), nullptr);
    if (message.has_finish()) events += Chunk(Json::object(), nullptr, &message.finish());
    return events;
  }

  std::string LastEvents() override {
    if (!include_usage_) return std::string(kLastEvent);
    Json chunk = AnswerObject(identity_, "chat.completion.chunk");
    chunk["choices"] = Json::array();
    chunk["usage"] = UsageJson(choices_.usage());
    return StrCat(Event(chunk), kLastEvent);
  }

  std::string ErrorEvent(const grpc::Status& status) override {
    return Event(OpenAiErrorJson(ErrorOf(status, field_names_, ChatFieldPlace)));
  }

  grpc::Status Keep(const ChatResponse& answer) override { return choices_.Keep(Choice(answer)); }
  size_t kept_bytes() const override { return choices_.kept_bytes(); }

  HttpReply Whole(const ChatResponse& answer) override {
    const Json last = Choice(answer);
    Json json = AnswerObject(identity_, "chat.completion");
    AddSession(answer.finish(), json);
    json["usage"] = UsageJson(choices_.usage());
    return {.body = choices_.Whole(json, last)};
  }

  HttpReply Error(const grpc::Status& status) override { return OpenAiError(ErrorOf(status, field_names_, ChatFieldPlace)); }

 private:
  Json Choice(const ChatResponse& answer) {
    choices_.AddUsage(answer.finish().usage());
    Json choice = {{"index", choices_.selected()},
                   {"message", MessageJson(answer)},
                   {"logprobs", LogprobsJson(answer)},
                   {"finish_reason", FinishReasonJson(FinishOf(answer))}};
    AddStopReason(FinishOf(answer), choice);
    return choice;
  }

  std::string Chunk(Json delta, Json logprobs, const moe::v1::Finish* finish) {
    Json chunk = AnswerObject(identity_, "chat.completion.chunk");
    chunk["choices"] = Json::array({{{"index", choices_.selected()},
                                     {"delta", std::move(delta)},
                                     {"logprobs", std::move(logprobs)},
                                     {"finish_reason", FinishReasonJson(finish)}}});
    AddStopReason(finish, chunk["choices"][0]);
    if (finish != nullptr) AddSession(*finish, chunk);
    if (include_usage_) chunk["usage"] = nullptr;
    return Event(chunk);
  }

  const AnswerIdentity identity_;
  const bool include_usage_;
  const std::vector<FieldName> field_names_;
  Choices choices_;
  std::vector<uint8_t> begun_;  // of each choice: whether its first event was written
};

}  // namespace

std::unique_ptr<AnswerWriter<ChatResponse>> MakeChatWriter(AnswerIdentity identity, const ChatDraft& draft) {
  return std::make_unique<ChatWriter>(std::move(identity), draft);
}

}  // namespace moed::http
