#include "server/http/openai/messages.h"

#include <utility>

#include "core/base/status.h"
#include "server/http/api/parameters.h"
#include "server/http/openai/tools.h"

namespace moed::http {
namespace {

using moe::v1::ChatMessage;
using moe::v1::ChatRequest;
using moe::v1::ToolCall;

// One part of a content: {"type": "text", "text": "..."}.
struct Part {
  std::string text;
  std::string* mutable_text() { return &text; }
};
constexpr Parameter<Part> kPart[] = {{"type", nullptr}, {"text", ApplyString<Part, &Part::mutable_text>}};

// The type first: members of parts that are not understood say nothing.
absl::Status ReadPart(const Json& element, Part& part) {
  if (!element.is_object()) return InvalidArgument(ShownJson(element), " is no object");
  const Json type = element.value("type", Json());
  if (type.is_null()) return InvalidArgument(".type: missing; the only one that is understood is \"text\"");
  if (type != "text") return InvalidArgument(".type: ", ShownJson(type), " is not understood; the only one that is is \"text\"");
  if (!HasMember(element, "text")) return InvalidArgument(".text: missing");
  return ReadMembers(element, kPart, part);
}

absl::Status ApplyContent(const Json& value, ChatMessage& message) {
  if (value.is_string()) {
    message.add_content()->set_text(value.get_ref<const std::string&>());
    return absl::OkStatus();
  }
  return ReadElements(value, [&](const Json& element) -> absl::Status {
    Part part;
    MOED_RETURN_IF_ERROR(ReadPart(element, part));
    message.add_content()->set_text(std::move(part.text));
    return absl::OkStatus();
  });
}

constexpr Parameter<ToolCall> kCalledFunction[] = {
    {"name", ApplyString<ToolCall, &ToolCall::mutable_name>},
    {"arguments", ApplyString<ToolCall, &ToolCall::mutable_arguments>},
};
absl::Status ApplyCalledFunction(const Json& value, ToolCall& call) { return ReadMembers(value, kCalledFunction, call); }
constexpr Parameter<ToolCall> kToolCall[] = {
    {"id", ApplyString<ToolCall, &ToolCall::mutable_id>},
    {"type", OnlyFunction<ToolCall>},
    {"function", ApplyCalledFunction},
    {"index", nullptr},  // deltas of a stream that were put together have it
};
absl::Status ApplyToolCalls(const Json& value, ChatMessage& message) {
  return ReadElements(value, [&](const Json& element) { return ReadMembers(element, kToolCall, *message.add_tool_calls()); });
}

absl::Status RefuseFunctionCall(const Json& value, ChatMessage&) { return OnlyValue(value, nullptr, "use tool_calls"); }
absl::Status RefuseAudio(const Json& value, ChatMessage&) { return OnlyValue(value, nullptr, "audio is not understood"); }

constexpr Parameter<ChatMessage> kMessage[] = {
    {"role", ApplyString<ChatMessage, &ChatMessage::mutable_role>},
    {"content", ApplyContent},
    {"name", ApplyString<ChatMessage, &ChatMessage::mutable_name>},
    {"tool_calls", ApplyToolCalls},
    {"tool_call_id", ApplyString<ChatMessage, &ChatMessage::mutable_tool_call_id>},
    {"reasoning_content", ApplyString<ChatMessage, &ChatMessage::mutable_reasoning>},
    {"reasoning", ApplyString<ChatMessage, &ChatMessage::mutable_reasoning>},  // vLLM's newer name
    {"function_call", RefuseFunctionCall},
    {"audio", RefuseAudio},
    // What answers carry and clients send back.
    {"refusal", nullptr},
    {"annotations", nullptr},
};

}  // namespace

absl::Status ReadMessages(const Json& messages, ChatRequest& request) {
  return ReadElements(messages, [&](const Json& element) { return ReadMembers(element, kMessage, *request.add_messages()); });
}

}  // namespace moed::http
