#include "server/http/openai/messages.h"

#include <span>
#include <utility>

#include "core/base/status.h"
#include "server/http/api/parameters.h"
#include "server/http/openai/tools.h"

namespace moed::http {
namespace {

using moe::v1::ChatMessage;
using moe::v1::ChatRequest;
using moe::v1::ToolCall;

absl::Status ApplyText(const Json& value, ChatMessage& message) {
  MOED_ASSIGN_OR_RETURN(const std::string text, StringOf(value));
  message.add_content()->set_text(text);
  return absl::OkStatus();
}
absl::Status ApplyThinking(const Json& value, ChatMessage& message);

// The parts of a content: {"type": "text", "text": "..."}. What clients put beside the text says nothing of it.
constexpr Parameter<ChatMessage> kText[] = {
    {"type", nullptr}, {"text", ApplyText}, {"cache_control", nullptr}, {"annotations", nullptr}};
constexpr Parameter<ChatMessage> kRefusal[] = {{"type", nullptr}, {"refusal", ApplyText}};
constexpr Parameter<ChatMessage> kThinking[] = {
    {"type", nullptr}, {"thinking", ApplyThinking}, {"signature", nullptr}, {"closed", nullptr}, {"cache_control", nullptr}};

// Of a type; the member of its name has to be given.
struct PartRow {
  std::string_view type;
  std::span<const Parameter<ChatMessage>> members;
};
constexpr PartRow kParts[] = {{"text", kText}, {"refusal", kRefusal}, {"thinking", kThinking}};

// The type first: members of parts that are not understood say nothing.
absl::Status ReadPart(const Json& element, std::span<const PartRow> rows, ChatMessage& message) {
  if (!element.is_object()) return InvalidArgument(ShownJson(element), " is no object");
  const Json type = element.value("type", Json());
  for (const PartRow& row : rows) {
    if (type != row.type) continue;
    if (!HasMember(element, row.type)) return InvalidArgument(".", row.type, ": missing");
    return ReadMembers(element, row.members, message);
  }
  const std::string understood = JoinNames(rows, [](const PartRow& row) { return row.type; });
  if (type.is_null()) return InvalidArgument(".type: missing; understood are: ", understood);
  return InvalidArgument(".type: ", ShownJson(type), " is not understood; understood are: ", understood);
}

absl::Status ReadStringOrParts(const Json& value, std::span<const PartRow> rows, ChatMessage& message) {
  if (value.is_string()) return ApplyText(value, message);
  return ReadElements(value, [&](const Json& element) { return ReadPart(element, rows, message); });
}
absl::Status ApplyContent(const Json& value, ChatMessage& message) { return ReadStringOrParts(value, kParts, message); }

// A text, or parts of text as Mistral's answers have them.
absl::Status ApplyThinking(const Json& value, ChatMessage& message) {
  ChatMessage thinking;
  MOED_RETURN_IF_ERROR(ReadStringOrParts(value, std::span(kParts).first(1), thinking));
  for (const auto& part : thinking.content()) message.mutable_reasoning()->append(part.text());
  return absl::OkStatus();
}

constexpr Parameter<ToolCall> kCalledFunction[] = {
    {"name", ApplyString<ToolCall, &ToolCall::mutable_name>},
    {"arguments", ApplyString<ToolCall, &ToolCall::mutable_arguments>},
    {"parsed_arguments", nullptr},  // of openai-python: the same again
};
absl::Status ApplyCalledFunction(const Json& value, ToolCall& call) { return ReadMembers(value, kCalledFunction, call); }
constexpr Parameter<ToolCall> kToolCall[] = {
    {"id", ApplyString<ToolCall, &ToolCall::mutable_id>},
    {"type", OnlyFunction<ToolCall>},
    {"function", ApplyCalledFunction},
    {"index", nullptr},  // deltas of a stream that were put together have it
    {"provider_specific_fields", nullptr},
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
    {"id", nullptr},
    {"parsed", nullptr},  // of openai-python: the content again
    {"cache_control", nullptr},
    {"provider_specific_fields", nullptr},
    {"thinking_blocks", nullptr},  // these two: the reasoning again
    {"reasoning_details", nullptr},
};

}  // namespace

absl::Status ReadMessages(const Json& messages, ChatRequest& request) {
  return ReadElements(messages, [&](const Json& element) { return ReadMembers(element, kMessage, *request.add_messages()); });
}

}  // namespace moed::http
