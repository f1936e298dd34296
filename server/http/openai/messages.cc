#include "server/http/openai/messages.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "core/base/status.h"
#include "server/http/api/parameters.h"

namespace moed::http {
namespace {

using moe::v1::ChatMessage;
using moe::v1::ChatRequest;
using moe::v1::Tool;
using moe::v1::ToolCall;
using moe::v1::ToolChoice;

template <class Message, std::string* (Message::*kMutable)()>
absl::Status ApplyText(const Json& value, Message& message) {
  MOED_ASSIGN_OR_RETURN(*(message.*kMutable)(), StringOf(value));
  return absl::OkStatus();
}

template <class Message>
absl::Status OnlyFunction(const Json& value, Message&) {
  return OnlyValue(value, "function", "other tools are not offered");
}

// One part of a content: {"type": "text", "text": "..."}.
struct Part {
  std::string text;
  std::string* mutable_text() { return &text; }
};
constexpr Parameter<Part> kPart[] = {{"type", nullptr}, {"text", ApplyText<Part, &Part::mutable_text>}};

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
    {"name", ApplyText<ToolCall, &ToolCall::mutable_name>},
    {"arguments", ApplyText<ToolCall, &ToolCall::mutable_arguments>},
};
absl::Status ApplyCalledFunction(const Json& value, ToolCall& call) { return ReadMembers(value, kCalledFunction, call); }
constexpr Parameter<ToolCall> kToolCall[] = {
    {"id", ApplyText<ToolCall, &ToolCall::mutable_id>},
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
    {"role", ApplyText<ChatMessage, &ChatMessage::mutable_role>},
    {"content", ApplyContent},
    {"name", ApplyText<ChatMessage, &ChatMessage::mutable_name>},
    {"tool_calls", ApplyToolCalls},
    {"tool_call_id", ApplyText<ChatMessage, &ChatMessage::mutable_tool_call_id>},
    {"reasoning_content", ApplyText<ChatMessage, &ChatMessage::mutable_reasoning>},
    {"reasoning", ApplyText<ChatMessage, &ChatMessage::mutable_reasoning>},  // vLLM's newer name
    {"function_call", RefuseFunctionCall},
    {"audio", RefuseAudio},
    // What answers carry and clients send back.
    {"refusal", nullptr},
    {"annotations", nullptr},
};

absl::Status ApplyToolParameters(const Json& value, Tool& tool) {
  if (!value.is_object()) return InvalidArgument(ShownJson(value), " is no JSON schema, which is an object");
  tool.set_parameters(value.dump());
  return absl::OkStatus();
}
absl::Status ApplyStrict(const Json& value, Tool& tool) {
  MOED_ASSIGN_OR_RETURN(const bool strict, BoolOf(value));
  tool.set_strict(strict);
  return absl::OkStatus();
}

constexpr Parameter<Tool> kFunction[] = {
    {"name", ApplyText<Tool, &Tool::mutable_name>},
    {"description", ApplyText<Tool, &Tool::mutable_description>},
    {"parameters", ApplyToolParameters},
    {"strict", ApplyStrict},
};
absl::Status ApplyFunction(const Json& value, Tool& tool) { return ReadMembers(value, kFunction, tool); }
constexpr Parameter<Tool> kTool[] = {{"type", OnlyFunction<Tool>}, {"function", ApplyFunction}};

struct ChoiceRow {
  std::string_view name;
  ToolChoice::Kind kind;
};
constexpr ChoiceRow kChoices[] = {{"auto", ToolChoice::AUTO}, {"none", ToolChoice::NONE}, {"required", ToolChoice::REQUIRED}};

constexpr Parameter<ToolChoice> kChosenFunction[] = {{"name", ApplyText<ToolChoice, &ToolChoice::mutable_name>}};
absl::Status ApplyChosenFunction(const Json& value, ToolChoice& choice) { return ReadMembers(value, kChosenFunction, choice); }
constexpr Parameter<ToolChoice> kChoice[] = {{"type", OnlyFunction<ToolChoice>}, {"function", ApplyChosenFunction}};

// {"mode": "auto", "tools": [{"type": "function", "function": {"name": "..."}}]}.
struct AllowedTools {
  ToolChoice::Kind mode = ToolChoice::KIND_UNSPECIFIED;
  std::optional<std::vector<std::string>> names;
};
absl::Status ApplyAllowedMode(const Json& value, AllowedTools& allowed) {
  if (value != "auto" && value != "required") return InvalidArgument(ShownJson(value), " is neither auto nor required");
  allowed.mode = value == "auto" ? ToolChoice::AUTO : ToolChoice::REQUIRED;
  return absl::OkStatus();
}
absl::Status ApplyAllowedNames(const Json& value, AllowedTools& allowed) {
  allowed.names.emplace();
  return ReadElements(value, [&](const Json& element) -> absl::Status {
    ToolChoice tool;
    MOED_RETURN_IF_ERROR(ReadMembers(element, kChoice, tool));
    if (tool.name().empty()) return InvalidArgument(".function.name: missing");
    allowed.names->push_back(tool.name());
    return absl::OkStatus();
  });
}
constexpr Parameter<AllowedTools> kAllowed[] = {{"mode", ApplyAllowedMode}, {"tools", ApplyAllowedNames}};
absl::Status ApplyAllowed(const Json& value, AllowedTools& allowed) {
  MOED_RETURN_IF_ERROR(ReadMembers(value, kAllowed, allowed));
  if (allowed.mode == ToolChoice::KIND_UNSPECIFIED) return InvalidArgument(".mode: missing");
  return allowed.names ? absl::OkStatus() : InvalidArgument(".tools: missing");
}
constexpr Parameter<AllowedTools> kAllowedChoice[] = {{"type", nullptr}, {"allowed_tools", ApplyAllowed}};

}  // namespace

absl::Status ReadMessages(const Json& messages, ChatRequest& request) {
  return ReadElements(messages, [&](const Json& element) { return ReadMembers(element, kMessage, *request.add_messages()); });
}

absl::Status ReadTools(const Json& tools, ChatRequest& request) {
  return ReadElements(tools, [&](const Json& element) { return ReadMembers(element, kTool, *request.add_tools()); });
}

absl::Status ReadToolChoice(const Json& choice, ToolChoice& out, std::optional<std::vector<std::string>>& allowed) {
  for (const ChoiceRow& row : kChoices) {
    if (choice == row.name) {
      out.set_kind(row.kind);
      return absl::OkStatus();
    }
  }
  if (!choice.is_object()) return InvalidArgument(ShownJson(choice), " is not auto, none, required, a function or allowed_tools");
  if (choice.value("type", Json()) == "allowed_tools") {
    if (!HasMember(choice, "allowed_tools")) return InvalidArgument(".allowed_tools: missing");
    AllowedTools read;
    MOED_RETURN_IF_ERROR(ReadMembers(choice, kAllowedChoice, read));
    out.set_kind(read.mode);
    allowed = std::move(read.names);
    return absl::OkStatus();
  }
  out.set_kind(ToolChoice::FUNCTION);
  return ReadMembers(choice, kChoice, out);
}

absl::Status KeepAllowedTools(const std::vector<std::string>& allowed, ChatRequest& request) {
  auto& tools = *request.mutable_tools();
  absl::flat_hash_set<std::string_view> known;
  for (const Tool& tool : tools) known.insert(tool.name());
  for (size_t i = 0; i < allowed.size(); ++i) {
    if (known.contains(allowed[i])) continue;
    return InvalidArgument("tool_choice.allowed_tools.tools[", i, "].function.name: no tool of this name; there are: ",
                           JoinNames(tools, [](const Tool& tool) { return tool.name(); }));
  }
  const absl::flat_hash_set<std::string_view> kept(allowed.begin(), allowed.end());
  const auto other = [&](const Tool& tool) { return !kept.contains(std::string_view(tool.name())); };
  tools.erase(std::remove_if(tools.begin(), tools.end(), other), tools.end());
  return absl::OkStatus();
}

}  // namespace moed::http
