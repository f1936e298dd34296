#include "server/http/openai/messages.h"

#include <span>
#include <utility>

#include "core/base/status.h"
#include "server/http/api/parameters.h"
#include "server/http/api/typed_object.h"
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

constexpr std::string_view kNeeded[] = {"text", "refusal", "thinking"};  // the member of the type's name
using Part = TypedObject<ChatMessage>;
constexpr Part kParts[] = {
    {kNeeded[0], kText, {&kNeeded[0], 1}}, {kNeeded[1], kRefusal, {&kNeeded[1], 1}}, {kNeeded[2], kThinking, {&kNeeded[2], 1}}};

absl::Status ReadStringOrParts(const Json& value, std::span<const Part> parts, ChatMessage& message) {
  if (value.is_string()) return ApplyText(value, message);
  return ReadElements(value, [&](const Json& element) { return ReadTyped(element, parts, message); });
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
    {"name", Into<&ToolCall::mutable_name>},
    {"arguments", Into<&ToolCall::mutable_arguments>},
    {"parsed_arguments", nullptr},  // of openai-python: the same again
};
absl::Status ApplyCalledFunction(const Json& value, ToolCall& call) { return ReadMembers(value, kCalledFunction, call); }
constexpr Parameter<ToolCall> kToolCall[] = {
    {"id", Into<&ToolCall::mutable_id>},   {"type", OnlyFunction<ToolCall>},
    {"function", ApplyCalledFunction},     {"index", nullptr},  // deltas of a stream that were put together have it
    {"provider_specific_fields", nullptr},
};
absl::Status ApplyToolCalls(const Json& value, ChatMessage& message) {
  return ReadElements(value, [&](const Json& element) { return ReadMembers(element, kToolCall, *message.add_tool_calls()); });
}

absl::Status RefuseFunctionCall(const Json& value, ChatMessage&) { return OnlyValue(value, nullptr, "use tool_calls"); }
absl::Status RefuseAudio(const Json& value, ChatMessage&) { return OnlyValue(value, nullptr, "audio is not understood"); }
absl::Status CheckType(const Json& value, ChatMessage&) {
  if (value == "message" || value == "text") return absl::OkStatus();
  return InvalidArgument(ShownJson(value), " is not understood; understood are: message, text");
}

constexpr Parameter<ChatMessage> kMessage[] = {
    {"type", CheckType},  // of clients that send items of /v1/responses, or parts, as messages
    {"role", Into<&ChatMessage::mutable_role>},
    {"content", ApplyContent},
    {"name", Into<&ChatMessage::mutable_name>},
    {"tool_calls", ApplyToolCalls},
    {"tool_call_id", Into<&ChatMessage::mutable_tool_call_id>},
    {"reasoning_content", Into<&ChatMessage::mutable_reasoning>},
    {"reasoning", Into<&ChatMessage::mutable_reasoning>},  // vLLM's newer name
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
