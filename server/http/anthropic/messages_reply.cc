#include "server/http/anthropic/messages_reply.h"

#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "server/http/anthropic/error.h"

namespace moed::http {
namespace {

using moe::v1::ChatResponse;
using moe::v1::ToolCallDelta;

std::string_view StopReason(moe::v1::FinishReason reason) {
  switch (reason) {
    case moe::v1::FINISH_REASON_STOP:
      return "end_turn";
    case moe::v1::FINISH_REASON_STOP_STRING:
      return "stop_sequence";
    case moe::v1::FINISH_REASON_TOOL_CALLS:
      return "tool_use";
    case moe::v1::FINISH_REASON_CONTEXT:
      return "model_context_window_exceeded";
    default:
      return "max_tokens";
  }
}

Json StopJson(const moe::v1::Finish& finish) {
  const bool by_string = finish.reason() == moe::v1::FINISH_REASON_STOP_STRING;
  return {{"stop_reason", StopReason(finish.reason())},
          {"stop_sequence", by_string ? Json(finish.stop_string()) : Json(nullptr)}};
}

Json FinalUsage(const moe::v1::Usage& usage) {
  return AnthropicUsage(usage.prompt_tokens(), usage.cached_tokens(), usage.completion_tokens());
}

Json TextBlock(const std::string& text) { return {{"type", "text"}, {"text", text}}; }
Json ThinkingBlock(const std::string& text) { return {{"type", "thinking"}, {"thinking", text}, {"signature", ""}}; }
Json ToolBlock(const ToolCallDelta& call, Json input) {
  return {{"type", "tool_use"}, {"id", call.id()}, {"name", call.name()}, {"input", std::move(input)}};
}

std::string EventOf(const Json& json) {
  return StrCat("event: ", json["type"].get_ref<const std::string&>(), "\ndata: ", Dumped(json), "\n\n");
}

class MessagesWriter final : public AnswerWriter<ChatResponse> {
 public:
  MessagesWriter(AnswerIdentity identity, const MessagesDraft& draft)
      : identity_(std::move(identity)), field_names_(MessagesFieldNames(draft)) {}

  std::string Events(const ChatResponse& message) override {
    std::string events;
    if (!std::exchange(begun_, true)) events = Begin(message.prompt_info());
    if (!message.reasoning().empty()) {
      events += Open(Kind::kThinking, -1, ThinkingBlock(""));
      events += Delta({{"type", "thinking_delta"}, {"thinking", message.reasoning()}});
    }
    if (!message.text().empty()) {
      events += Open(Kind::kText, -1, TextBlock(""));
      events += Delta({{"type", "text_delta"}, {"text", message.text()}});
    }
    for (const ToolCallDelta& call : message.tool_calls()) {
      events += Open(Kind::kTool, call.index(), ToolBlock(call, Json::object()));
      if (!call.arguments().empty()) events += Delta({{"type", "input_json_delta"}, {"partial_json", call.arguments()}});
    }
    if (message.has_finish()) events += End(message.finish());
    return events;
  }

  std::string LastEvents() override { return EventOf({{"type", "message_stop"}}); }

  std::string Ping() override { return EventOf({{"type", "ping"}}); }

  std::string ErrorEvent(const grpc::Status& status) override {
    return EventOf(AnthropicErrorJson(ErrorOf(status, field_names_)));
  }

  HttpReply Whole(const ChatResponse& answer) override {
    Json content = Json::array();
    if (!answer.reasoning().empty()) content.push_back(ThinkingBlock(answer.reasoning()));
    if (!answer.text().empty()) content.push_back(TextBlock(answer.text()));
    for (const ToolCallDelta& call : answer.tool_calls()) {
      Json input = Json::parse(call.arguments(), nullptr, false);
      if (input.is_object()) content.push_back(ToolBlock(call, std::move(input)));  // one that was cut off is none
    }
    Json message = Message(std::move(content));
    message.update(StopJson(answer.finish()));
    message["usage"] = FinalUsage(answer.finish().usage());
    return {.body = Dumped(message)};
  }

  HttpReply Error(const grpc::Status& status) override { return AnthropicError(ErrorOf(status, field_names_)); }

 private:
  enum class Kind { kNone, kThinking, kText, kTool };

  Json Message(Json content) const {
    return {{"id", identity_.id},
            {"type", "message"},
            {"role", "assistant"},
            {"model", identity_.model},
            {"content", std::move(content)},
            {"stop_reason", nullptr},
            {"stop_sequence", nullptr}};
  }

  std::string Begin(const moe::v1::PromptInfo& prompt) const {
    Json message = Message(Json::array());
    message["usage"] = AnthropicUsage(prompt.prompt_tokens(), prompt.cached_tokens(), 0);
    return EventOf({{"type", "message_start"}, {"message", std::move(message)}}) + EventOf({{"type", "ping"}});
  }

  // Unless it is open.
  std::string Open(Kind kind, int call, Json block) {
    if (open_ == kind && call_ == call) return "";
    std::string events = Close();
    open_ = kind;
    call_ = call;
    ++index_;
    return events + EventOf({{"type", "content_block_start"}, {"index", index_}, {"content_block", std::move(block)}});
  }

  std::string Close() {
    if (std::exchange(open_, Kind::kNone) == Kind::kNone) return "";
    return EventOf({{"type", "content_block_stop"}, {"index", index_}});
  }

  std::string Delta(Json delta) const {
    return EventOf({{"type", "content_block_delta"}, {"index", index_}, {"delta", std::move(delta)}});
  }

  std::string End(const moe::v1::Finish& finish) {
    return Close() + EventOf({{"type", "message_delta"}, {"delta", StopJson(finish)}, {"usage", FinalUsage(finish.usage())}});
  }

  const AnswerIdentity identity_;
  const std::vector<FieldName> field_names_;
  bool begun_ = false;
  Kind open_ = Kind::kNone;  // the block that is being written
  int call_ = -1;            // of kTool
  int index_ = -1;
};

}  // namespace

std::unique_ptr<AnswerWriter<ChatResponse>> MakeMessagesWriter(AnswerIdentity identity, const MessagesDraft& draft) {
  return std::make_unique<MessagesWriter>(std::move(identity), draft);
}

}  // namespace moed::http
