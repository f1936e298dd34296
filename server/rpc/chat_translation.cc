#include "server/rpc/chat_translation.h"

#include <algorithm>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/chat/answer/call_reader.h"
#include "core/chat/answer/json_scanner.h"
#include "core/chat/answer/tool_schemas.h"
#include "core/chat/error.h"
#include "core/chat/json.h"
#include "core/grammar/grammar.h"
#include "server/rpc/system_messages.h"
#include "server/wire/error_details.h"

namespace moed {
namespace {

using chat::Dict;
using chat::Kind;
using chat::Value;

constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
// What the conversation itself says.
constexpr std::string_view kReservedVariables[] = {"messages", "tools", "add_generation_prompt"};

// What is known of a list or text while it grows is the new one alone: there is the old one, half as large, and as much again for
// what it becomes.
constexpr size_t kCopiesOfGrowing = 3;

// Makes values up to a number of bytes; what comes after is null, and the request is refused.
class ConversationBuilder {
 public:
  ConversationBuilder(const chat::ModelTemplate& model, size_t room, FieldErrors& errors)
      : model_(model), room_at_start_(room), room_(room), errors_(errors) {}

  std::vector<Dict::Entry> Build(moe::v1::ChatRequest& request) {
    std::vector<Dict::Entry> variables;
    Add(variables, "messages", Messages(*request.mutable_messages()));
    if (request.tool_choice().kind() != moe::v1::ToolChoice::NONE) tools_ = Tools(*request.mutable_tools());
    Add(variables, "tools", tools_);
    Add(variables, "documents", Value());
    Add(variables, "add_generation_prompt", Value(true));
    AddFurther(request.template_variables(), variables);
    if (full_)
      errors_.Add("messages", "take more than the ", room_at_start_, " bytes that a conversation may: a larger ",
                  "--memory-budget of the server allows more");
    return variables;
  }
  const Value& tools() const { return tools_; }
  size_t room() const { return room_; }
  bool full() const { return full_; }

 private:
  bool Take(size_t bytes) {
    full_ |= bytes > room_;
    if (!full_) room_ -= bytes;
    return !full_;
  }
  Value Text(std::string* text) {
    const size_t bytes = chat::BytesOfText(*text);
    return Take(bytes) ? chat::MakeForeignText(std::move(*text)) : Value();
  }
  void Add(std::vector<Dict::Entry>& entries, std::string_view key, Value value) {
    if (Take(2 * chat::kBytesOfItem)) entries.emplace_back(chat::MakeText(std::string(key)), std::move(value));
  }
  Value DictOf(std::vector<Dict::Entry> entries) {
    return Take(chat::kBytesOfContainer) ? chat::MakeDict(std::move(entries)) : Value();
  }
  void Append(std::vector<Value>& list, Value value) {
    if (Take(chat::kBytesOfItem)) list.push_back(std::move(value));
  }

  // Null, and an error, for what is no object.
  Value Object(const std::string& field, const std::string& json) {
    const auto value = chat::ForeignFromJson(json, room_);
    if (absl::IsResourceExhausted(value.status())) {
      full_ = true;
    } else if (!value.ok()) {
      errors_.Add(field, value.status().message());
    } else if (!value->is(Kind::kDict)) {
      errors_.Add(field, "is JSON, but no object");
    } else {
      return *value;
    }
    return Value();
  }

  // Those that an answer's end cut off are what there is of them.
  Value Arguments(const std::string& field, const std::string& json) {
    const auto closed = chat::ClosedJson(json);
    return Object(field, closed ? *closed : json);
  }

  void CheckName(const std::string& field, const std::string& name) {
    if (name.empty()) errors_.Add(field, "empty, at least one byte is needed");
  }

  Value Messages(google::protobuf::RepeatedPtrField<moe::v1::ChatMessage>& messages) {
    if (messages.empty()) errors_.Add("messages", "empty, at least one is needed");
    std::vector<Value> list;
    for (const int i : PlaceSystemMessages(model_.system_form(), messages)) {
      if (!full_) Append(list, Message(StrCat("messages[", i, "]"), messages[i]));
    }
    return chat::MakeList(std::move(list));
  }

  Value Message(const std::string& field, moe::v1::ChatMessage& message) {
    if (std::ranges::find(kRoles, message.role()) == std::end(kRoles)) {
      errors_.Add(field + ".role", "unknown; known are ", JoinNames(kRoles, std::identity()));
    }
    if (message.role() != "assistant") {
      if (!message.reasoning().empty()) errors_.Add(field + ".reasoning", "only an assistant has some");
      if (!message.tool_calls().empty()) errors_.Add(field + ".tool_calls", "only an assistant makes some");
    }
    std::vector<Dict::Entry> entries;
    Add(entries, "role", chat::MakeText(message.role()));  // one of ours: templates make markers of them
    Add(entries, "content", Content(field, message));
    if (!message.reasoning().empty()) {
      const Value reasoning = Text(message.mutable_reasoning());
      for (const std::string_view key : chat::kReasoningKeys) Add(entries, key, reasoning);
    }
    if (!message.tool_calls().empty()) Add(entries, "tool_calls", Calls(field, *message.mutable_tool_calls()));
    if (!message.tool_call_id().empty()) Add(entries, "tool_call_id", Text(message.mutable_tool_call_id()));
    if (!message.name().empty()) Add(entries, "name", Text(message.mutable_name()));
    return DictOf(std::move(entries));
  }

  // Read before the reasoning, which the text may join.
  Value Content(const std::string& field, moe::v1::ChatMessage& message) {
    const chat::CallForm& form = model_.call_form();
    const bool calls = !message.tool_calls().empty();
    if (calls && message.content().empty() && form.content_is_none) return Value();
    std::string text = TextOf(field, message);
    if (calls && form.text_joins_reasoning && !text.empty() && !message.reasoning().empty()) {
      AppendLine(*message.mutable_reasoning(), text);
      text.clear();
    }
    return Text(&text);
  }

  // The texts of its parts, a line end between two that are not empty.
  std::string TextOf(const std::string& field, moe::v1::ChatMessage& message) {
    size_t bytes = 0;
    for (int i = 0; i < message.content_size(); ++i) {
      const moe::v1::ContentPart& part = message.content(i);
      if (part.part_case() == moe::v1::ContentPart::PART_NOT_SET) errors_.Add(StrCat(field, ".content[", i, "]"), "has no text");
      bytes += part.text().size() + 1;
    }
    if (message.content_size() == 1) return std::move(*message.mutable_content(0)->mutable_text());
    full_ |= bytes > room_;
    if (full_) return "";
    std::string joined;
    joined.reserve(bytes);
    for (const moe::v1::ContentPart& part : message.content()) {
      if (!joined.empty() && !part.text().empty()) joined += '\n';
      joined += part.text();
    }
    return joined;
  }

  void AppendLine(std::string& text, std::string_view line) {
    const size_t bytes = text.size() + 1 + line.size();
    full_ |= bytes > room_;
    if (full_) return;
    text.reserve(bytes);
    text += '\n';
    text += line;
  }

  Value Calls(const std::string& of, google::protobuf::RepeatedPtrField<moe::v1::ToolCall>& calls) {
    std::vector<Value> list;
    for (int i = 0; i < calls.size() && !full_; ++i) {
      const std::string field = StrCat(of, ".tool_calls[", i, "]");
      CheckName(field + ".name", calls[i].name());
      std::vector<Dict::Entry> function, entries;
      Add(function, "name", Text(calls[i].mutable_name()));
      if (calls[i].arguments().empty()) calls[i].set_arguments("{}");
      const Value arguments = Arguments(field + ".arguments", calls[i].arguments());
      Add(function, "arguments", model_.call_form().arguments_are_text ? Text(calls[i].mutable_arguments()) : arguments);
      Add(entries, "type", FunctionType());
      if (!calls[i].id().empty()) Add(entries, "id", Text(calls[i].mutable_id()));
      Add(entries, "function", DictOf(std::move(function)));
      Append(list, DictOf(std::move(entries)));
    }
    return chat::MakeList(std::move(list));
  }

  Value Tools(google::protobuf::RepeatedPtrField<moe::v1::Tool>& tools) {
    if (tools.empty()) return Value();
    std::vector<Value> list;
    for (int i = 0; i < tools.size() && !full_; ++i) {
      const std::string field = StrCat("tools[", i, "]");
      CheckName(field + ".name", tools[i].name());
      std::vector<Dict::Entry> function, entries;
      Add(function, "name", Text(tools[i].mutable_name()));
      Add(function, "description", Text(tools[i].mutable_description()));
      if (!tools[i].parameters().empty()) Add(function, "parameters", Object(field + ".parameters", tools[i].parameters()));
      Add(entries, "type", FunctionType());
      Add(entries, "function", DictOf(std::move(function)));
      Append(list, DictOf(std::move(entries)));
    }
    return chat::MakeList(std::move(list));
  }

  static Value FunctionType() { return chat::MakeText("function"); }

  void AddFurther(const std::string& json, std::vector<Dict::Entry>& variables) {
    if (json.empty() || full_) return;
    const Value further = Object("template_variables", json);
    if (!further.is(Kind::kDict)) return;
    for (const auto& [key, value] : further.dict().entries()) {
      if (std::ranges::find(kReservedVariables, key.text()) != std::end(kReservedVariables)) {
        errors_.Add("template_variables", "'", key.text(), "' is a variable of the conversation");
      }
      variables.emplace_back(key, value);
    }
  }

  const chat::ModelTemplate& model_;
  const size_t room_at_start_;
  size_t room_;
  bool full_ = false;
  Value tools_;
  FieldErrors& errors_;
};

// Whether a schema of arguments says anything of members, be it that there may be any.
bool SpeaksOfMembers(const grammar::Json& schema) {
  const auto says = [&](std::string_view keyword) { return schema.contains(keyword); };
  constexpr std::string_view kKeywords[] = {
      "additionalProperties", "patternProperties", "propertyNames", "const", "enum", "allOf", "anyOf", "oneOf", "$ref"};
  constexpr std::string_view kLists[] = {"properties", "required"};
  return std::ranges::any_of(kKeywords, says) ||
         std::ranges::any_of(kLists, [&](std::string_view list) { return says(list) && !schema[list].empty(); });
}

// The schema that a tool's arguments follow; null where there is none, and an error where it has to be one.
std::shared_ptr<const grammar::Json> SchemaOf(const moe::v1::Tool& tool, const std::string& field, FieldErrors& errors) {
  auto schema = grammar::ReadSchema(tool.parameters().empty() ? "{}" : tool.parameters());
  if (!schema.ok() || !schema->is_object()) return nullptr;  // ConversationBuilder refuses it
  if (schema->contains("type") && (*schema)["type"] != "object") {
    if (tool.strict()) errors.Add(field, "at /: 'type' of arguments is \"object\"");
    return nullptr;
  }
  (*schema)["type"] = "object";
  if (!SpeaksOfMembers(*schema)) (*schema)["additionalProperties"] = false;
  return std::make_shared<const grammar::Json>(*std::move(schema));
}

void CheckCallable(const std::string& field, const std::string& name, FieldErrors& errors) {
  if (!std::ranges::all_of(name, chat::IsNameCharacter))
    errors.Add(field, "calls can be held to names of letters, digits, and _ - . : / only");
}

// What makes the model call tools, or hold to their schemas.
class CallRules {
 public:
  CallRules(const moe::v1::ChatRequest& request, FieldErrors& errors)
      : request_(request), choice_(request.tool_choice()), errors_(errors) {}

  // Nothing where an answer is as the model likes.
  std::optional<chat::AnswerRules> Build() {
    using Choice = moe::v1::ToolChoice;
    if (choice_.kind() < Choice::KIND_UNSPECIFIED || choice_.kind() > Choice::FUNCTION) {
      errors_.Add("tool_choice.kind", static_cast<int>(choice_.kind()),
                  " is unknown; known are AUTO (1), NONE (2), REQUIRED (3) and FUNCTION (4)");
      return std::nullopt;
    }
    chat::AnswerRules rules;
    rules.must_call = choice_.kind() == Choice::REQUIRED || choice_.kind() == Choice::FUNCTION;
    if (choice_.kind() != Choice::FUNCTION && !choice_.name().empty()) errors_.Add("tool_choice.name", "goes with FUNCTION only");
    if (choice_.kind() == Choice::FUNCTION || choice_.at_most_one()) rules.most_calls = 1;
    const bool held = rules.must_call || request_.has_format() || (choice_.at_most_one() && !request_.tools().empty()) ||
                      std::ranges::any_of(request_.tools(), [](const auto& tool) { return tool.strict(); });
    if (choice_.kind() != Choice::NONE && held) AddTools(rules);
    if (rules.must_call && rules.tools.empty()) RefuseChoice();
    return held ? std::optional(std::move(rules)) : std::nullopt;
  }

 private:
  void AddTools(chat::AnswerRules& rules) {
    size_t bytes = 0;
    for (int i = 0; i < request_.tools_size(); ++i) {
      const moe::v1::Tool& tool = request_.tools(i);
      if (choice_.kind() == moe::v1::ToolChoice::FUNCTION && tool.name() != choice_.name()) continue;
      const std::string field = StrCat("tools[", i, "].parameters");
      CheckCallable(StrCat("tools[", i, "].name"), tool.name(), errors_);
      const bool fits = bytes + tool.parameters().size() <= grammar::kMostSourceBytes;
      const bool held = tool.strict() || (rules.must_call && fits);
      if (held) bytes += tool.parameters().size();
      if (bytes > grammar::kMostSourceBytes) {
        return errors_.Add(field, "schemas that calls are held to take more than ", grammar::kMostSourceBytes, " bytes together");
      }
      rules.tools.push_back({field, tool.name(), held ? SchemaOf(tool, field, errors_) : nullptr, tool.strict()});
    }
  }

  void RefuseChoice() {
    if (choice_.kind() == moe::v1::ToolChoice::REQUIRED)
      return errors_.Add("tool_choice.kind", "REQUIRED needs tools, and there are none");
    errors_.Add("tool_choice.name", "no tool of this name; there are: ",
                JoinNames(request_.tools(), [](const moe::v1::Tool& tool) { return tool.name(); }));
  }

  const moe::v1::ChatRequest& request_;
  const moe::v1::ToolChoice& choice_;
  FieldErrors& errors_;
};

// What the template itself says arrives with its words alone. Its limits are those of a request.
absl::Status WordsOfTemplate(const absl::Status& status) {
  const auto line = chat::LineOf(status);
  if (chat::IsRaised(status) || !line || !absl::IsInvalidArgument(status)) return FieldError("messages", status.message());
  return FieldError("messages", "line ", *line, " of the chat template: ", status.message());
}

absl::Status ChatTemplateError(const absl::Status& status, std::optional<int> beyond_context, const RequestLimits& limits) {
  if (chat::IsTooLong(status)) beyond_context = limits.ContextOfText();
  const bool marked = beyond_context && absl::IsResourceExhausted(status);
  return marked ? BeyondContext(WordsOfTemplate(status), *beyond_context) : WordsOfTemplate(status);
}

size_t BytesOfContents(const moe::v1::ChatRequest& request) {
  size_t bytes = 0;
  for (const auto& message : request.messages()) {
    for (const auto& part : message.content()) bytes += part.text().size();
  }
  return bytes;
}

}  // namespace

absl::StatusOr<PendingRequest> TranslateChat(moe::v1::ChatRequest request, const LoadedModel& model,
                                             const RequestLimits& limits) {
  if (!model.without_conversations.empty()) {
    return FailedPrecondition("the model is ", model.without_conversations, ", which has no conversations: use Generate");
  }
  if (model.chat == nullptr) {
    return absl::FailedPreconditionError(
        "the model has no chat template: use Generate, or pack it again with moed-pack --chat-template FILE");
  }
  PendingRequest out;
  FieldErrors errors;
  out.rules = CallRules(request, errors).Build();
  moe::v1::Sampling sampling = model.info.sampling_defaults();
  sampling.MergeFrom(request.sampling());
  TranslateAnswer({sampling, request.stopping(), request.response(), request.fidelity(), request.format()}, out, errors);
  if (out.rules && out.rules->must_call) out.format.reset();  // it is about a text, and there is none
  if (request.response().prompt_logprobs())
    errors.Add("response.prompt_logprobs", "true is for Generate, whose prompt its client knows");
  out.engine.name = std::move(*request.mutable_request_id());
  out.engine.session_id = std::move(*request.mutable_session_id());
  out.engine.must_exist = request.must_exist();
  if (request.has_expected_tokens()) out.engine.expected_tokens = request.expected_tokens();
  out.engine.priority = TranslatePriority(request.priority(), errors);
  out.engine.whole_prompt = true;
  out.add_special_tokens = false;
  ConversationBuilder builder(*model.chat, limits.conversation_bytes, errors);
  PendingRequest::Conversation conversation;
  const bool has_markers = model.answer_format != &chat::AnswerFormats().back();
  if (has_markers) conversation.skip_special_tokens = std::exchange(out.engine.skip_special_tokens, false);
  if (BytesOfContents(request) > limits.prompt_bytes) conversation.beyond_context = limits.ContextOfText();
  conversation.variables = builder.Build(request);
  conversation.tools = builder.tools();
  if (const size_t bytes = chat::ToolSchemas::BytesOf(conversation.tools); bytes > limits.tool_schema_bytes) {
    errors.Add("tools", "names of functions and parameters take ", bytes, " bytes, at most ", limits.tool_schema_bytes,
               " are allowed: a larger --memory-budget of the server allows more");
  }
  conversation.room = builder.room() / kCopiesOfGrowing;
  if (absl::Status wrong = errors.ToStatus(); !wrong.ok()) {
    const bool too_long = builder.full() && conversation.beyond_context;
    return too_long ? BeyondContext(std::move(wrong), *conversation.beyond_context) : wrong;
  }
  out.conversation = std::move(conversation);
  return out;
}

absl::StatusOr<chat::MarkedText> RenderConversation(const PendingRequest::Conversation& conversation, const LoadedModel& model,
                                                    const RequestLimits& limits, std::function<bool()> stopping) {
  chat::RenderOptions options;
  options.limits.output_bytes = limits.prompt_bytes;
  options.limits.memory_bytes = conversation.room;
  options.stopping = std::move(stopping);
  const std::time_t now = std::time(nullptr);
  localtime_r(&now, &options.now);
  auto text = model.chat->Render(conversation.variables, options);
  if (!text.ok()) return ChatTemplateError(text.status(), conversation.beyond_context, limits);
  return text;
}

}  // namespace moed
