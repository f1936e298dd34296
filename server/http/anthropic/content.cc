#include "server/http/anthropic/content.h"

#include <span>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "core/base/status.h"
#include "server/http/api/parameters.h"
#include "server/http/api/tool_members.h"
#include "server/http/api/typed_object.h"

namespace moed::http {
namespace {

using moe::v1::ChatMessage;
using moe::v1::ChatRequest;
using moe::v1::Tool;

// The members that blocks of any type have. Which of them belong to which type is looked at when the type is known.
struct Block {
  std::string type, text, thinking, id, name, tool_use_id, result;
  Json input;
};

absl::Status ApplyInput(const Json& value, Block& block) {
  if (!value.is_object()) return InvalidArgument(ShownJson(value), " is no object");
  block.input = value;
  return absl::OkStatus();
}
absl::Status ApplyResult(const Json& value, Block& block) { return ReadTextOrBlocks(value, block.result); }
absl::Status ApplyIsError(const Json& value, Block&) { return BoolOf(value).status(); }  // the content says what went wrong

constexpr Parameter<Block> kText[] = {
    {"type", Into<&Block::type>}, {"text", Into<&Block::text>}, {"cache_control", nullptr}, {"citations", nullptr}};
constexpr Parameter<Block> kThinking[] = {
    {"type", Into<&Block::type>}, {"thinking", Into<&Block::thinking>}, {"signature", nullptr}, {"cache_control", nullptr}};
constexpr Parameter<Block> kToolUse[] = {{"type", Into<&Block::type>}, {"id", Into<&Block::id>}, {"name", Into<&Block::name>},
                                         {"input", ApplyInput},        {"caller", nullptr},      {"cache_control", nullptr}};
constexpr Parameter<Block> kToolResult[] = {{"type", Into<&Block::type>},
                                            {"tool_use_id", Into<&Block::tool_use_id>},
                                            {"content", ApplyResult},
                                            {"is_error", ApplyIsError},
                                            {"cache_control", nullptr}};
// Another service's reasoning, which nobody else can read.
constexpr Parameter<Block> kRedactedThinking[] = {{"type", Into<&Block::type>}, {"data", nullptr}, {"cache_control", nullptr}};

constexpr std::string_view kNeededText[] = {"text"}, kNeededThinking[] = {"thinking"}, kNeededData[] = {"data"},
                           kNeededName[] = {"name"}, kNeededId[] = {"tool_use_id"};
using BlockRow = TypedObject<Block>;
constexpr BlockRow kTextAlone[] = {{"text", kText, kNeededText}};
constexpr BlockRow kOfUser[] = {kTextAlone[0], {"tool_result", kToolResult, kNeededId}};
constexpr BlockRow kOfAssistant[] = {kTextAlone[0],
                                     {"thinking", kThinking, kNeededThinking},
                                     {"redacted_thinking", kRedactedThinking, kNeededData},
                                     {"tool_use", kToolUse, kNeededName}};

// Names of calls by their ids, of the first one that has it.
using CallNames = absl::flat_hash_map<std::string, std::string>;

// The blocks that messages of a role may have; none where there is no such role.
std::span<const BlockRow> BlocksOf(std::string_view role) {
  if (role == "user") return kOfUser;
  if (role == "assistant") return kOfAssistant;
  if (role == "system") return kTextAlone;
  return {};
}

// A conversation while it is read.
struct Conversation {
  ChatRequest& request;
  CallNames names;
};

void AddUserBlock(Block block, Conversation& conversation, ChatMessage*& open) {
  if (block.type == "tool_result") {
    ChatMessage& result = *conversation.request.add_messages();
    result.set_role("tool");
    const auto name = conversation.names.find(block.tool_use_id);
    if (name != conversation.names.end()) result.set_name(name->second);
    result.set_tool_call_id(std::move(block.tool_use_id));
    result.add_content()->set_text(std::move(block.result));
    open = nullptr;
    return;
  }
  if (open == nullptr) {
    open = conversation.request.add_messages();
    open->set_role("user");
  }
  open->add_content()->set_text(std::move(block.text));
}

void AddBlock(Block block, CallNames& names, ChatMessage& message) {
  if (block.type == "text") {
    message.add_content()->set_text(std::move(block.text));
  } else if (block.type == "thinking") {
    message.mutable_reasoning()->append(block.thinking);
  } else if (block.type == "tool_use") {
    names.try_emplace(block.id, block.name);
    auto& call = *message.add_tool_calls();
    call.set_id(std::move(block.id));
    call.set_name(std::move(block.name));
    call.set_arguments(block.input.is_null() ? "{}" : block.input.dump());
  }
}

absl::Status ReadContent(const Json& content, const std::string& role, Conversation& conversation) {
  const bool of_user = role == "user";
  ChatMessage* open = nullptr;  // the message that the next text belongs to
  if (content.is_string() || !of_user) {
    open = conversation.request.add_messages();
    open->set_role(role);
  }
  if (content.is_string()) {
    open->add_content()->set_text(content.get_ref<const std::string&>());
    return absl::OkStatus();
  }
  return ReadElements(content, [&](const Json& element) -> absl::Status {
    Block block;
    MOED_RETURN_IF_ERROR(ReadTyped(element, BlocksOf(role), block));
    if (of_user) {
      AddUserBlock(std::move(block), conversation, open);
    } else {
      AddBlock(std::move(block), conversation.names, *open);
    }
    return absl::OkStatus();
  });
}

absl::Status ReadMessage(const Json& json, Conversation& conversation) {
  struct Message {
    std::string role;
    const Json* content = nullptr;
  } message;
  constexpr Parameter<Message> kMessage[] = {{"role",
                                              [](const Json& value, Message& out) -> absl::Status {
                                                MOED_ASSIGN_OR_RETURN(out.role, StringOf(value));
                                                return absl::OkStatus();
                                              }},
                                             {"content", [](const Json& value, Message& out) -> absl::Status {
                                                out.content = &value;
                                                return absl::OkStatus();
                                              }}};
  MOED_RETURN_IF_ERROR(ReadMembers(json, kMessage, message));
  if (BlocksOf(message.role).empty()) return InvalidArgument(".role: allowed are user, assistant and system");
  if (message.content == nullptr) return InvalidArgument(".content: missing");
  return InParameter(".content", ReadContent(*message.content, message.role, conversation));
}

absl::Status ApplyToolType(const Json& value, Tool&) { return OnlyValue(value, "custom", "tools of a server are not offered"); }
constexpr Parameter<Tool> kTool[] = {{"type", ApplyToolType},
                                     {"name", Into<&Tool::mutable_name>},
                                     {"description", Into<&Tool::mutable_description>},
                                     {"input_schema", ApplyToolSchema},
                                     {"strict", Into<&Tool::set_strict>},
                                     {"allowed_callers", ApplyToolCallers},
                                     {"defer_loading", ApplyToolDeferLoading},
                                     {"eager_input_streaming", nullptr},
                                     {"input_examples", nullptr},
                                     {"cache_control", nullptr}};

}  // namespace

absl::Status ReadAnthropicMessages(const Json& messages, ChatRequest& request) {
  Conversation conversation{request, {}};
  return ReadElements(messages, [&](const Json& element) { return ReadMessage(element, conversation); });
}

absl::Status ReadAnthropicTools(const Json& tools, ChatRequest& request) {
  return ReadElements(tools, [&](const Json& element) { return ReadMembers(element, kTool, *request.add_tools()); });
}

absl::Status ReadTextOrBlocks(const Json& value, std::string& text) {
  if (value.is_string()) {
    text = value.get_ref<const std::string&>();
    return absl::OkStatus();
  }
  return ReadElements(value, [&](const Json& element) -> absl::Status {
    Block block;
    MOED_RETURN_IF_ERROR(ReadTyped(element, kTextAlone, block));
    if (!text.empty() && !block.text.empty()) text += '\n';
    text += block.text;
    return absl::OkStatus();
  });
}

}  // namespace moed::http
