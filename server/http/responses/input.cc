#include "server/http/responses/input.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "core/base/status.h"
#include "server/http/api/conversation.h"
#include "server/http/api/parameters.h"
#include "server/http/api/typed_object.h"

namespace moed::http {
namespace {

using moe::v1::ChatMessage;

constexpr std::string_view kSystem = "system";
constexpr std::string_view kAssistant = "assistant";
constexpr std::string_view kTool = "tool";

// The members that items of any type have. Which of them belong to which type is looked at when the type is known.
struct Item {
  std::string type = "message";  // which messages may leave out
  std::string role, name, arguments, call_id, summary, reasoning;
  std::vector<std::string> texts;
};

// {"type": "input_text", "text": "..."}; what an answer's parts carry besides may come back.
struct Part {
  std::string text;
};
constexpr Parameter<Part> kText[] = {{"type", nullptr},
                                     {"text", Into<&Part::text>},
                                     {"annotations", nullptr},
                                     {"logprobs", nullptr},
                                     {"parsed", nullptr},  // of openai-python: the text again
                                     {"prompt_cache_breakpoint", nullptr}};
constexpr Parameter<Part> kRefusal[] = {{"type", nullptr}, {"refusal", Into<&Part::text>}};

constexpr std::string_view kNeededText[] = {"text"};
constexpr std::string_view kNeededRefusal[] = {"refusal"};
constexpr TypedObject<Part> kContentParts[] = {
    {"input_text", kText, kNeededText}, {"output_text", kText, kNeededText}, {"refusal", kRefusal, kNeededRefusal}};
constexpr TypedObject<Part> kOutputParts[] = {{"input_text", kText, kNeededText}};
constexpr TypedObject<Part> kSummaryParts[] = {{"summary_text", kText, kNeededText}};
constexpr TypedObject<Part> kReasoningParts[] = {{"reasoning_text", kText, kNeededText}};

template <class Add>
absl::Status ReadParts(const Json& value, std::span<const TypedObject<Part>> rows, Add add) {
  return ReadElements(value, [&](const Json& element) -> absl::Status {
    Part part;
    MOED_RETURN_IF_ERROR(ReadTyped(element, rows, part));
    add(std::move(part.text));
    return absl::OkStatus();
  });
}

absl::Status ReadStringOrParts(const Json& value, std::span<const TypedObject<Part>> rows, Item& item) {
  if (!value.is_string()) return ReadParts(value, rows, [&](std::string text) { item.texts.push_back(std::move(text)); });
  item.texts.push_back(value.get_ref<const std::string&>());
  return absl::OkStatus();
}
absl::Status ApplyContent(const Json& value, Item& item) { return ReadStringOrParts(value, kContentParts, item); }
absl::Status ApplyOutput(const Json& value, Item& item) { return ReadStringOrParts(value, kOutputParts, item); }
absl::Status ApplySummary(const Json& value, Item& item) {
  return ReadParts(value, kSummaryParts, [&](const std::string& text) { item.summary += text; });
}
absl::Status ApplyReasoning(const Json& value, Item& item) {
  return ReadParts(value, kReasoningParts, [&](const std::string& text) { item.reasoning += text; });
}
absl::Status ApplyRole(const Json& value, Item& item) {
  MOED_ASSIGN_OR_RETURN(item.role, StringOf(value));
  for (const std::string_view role : {"user", "assistant", "system", "developer"}) {
    if (item.role == role) return absl::OkStatus();
  }
  return InvalidArgument("allowed are user, assistant, system and developer");
}

constexpr Parameter<Item> kMessage[] = {{"type", Into<&Item::type>}, {"role", ApplyRole},
                                        {"content", ApplyContent},   {"id", nullptr},
                                        {"status", nullptr},         {"phase", nullptr}};
constexpr Parameter<Item> kFunctionCall[] = {{"type", Into<&Item::type>},
                                             {"name", Into<&Item::name>},
                                             {"arguments", Into<&Item::arguments>},
                                             {"call_id", Into<&Item::call_id>},
                                             {"parsed_arguments", nullptr},  // likewise
                                             {"id", nullptr},
                                             {"status", nullptr}};
constexpr Parameter<Item> kFunctionCallOutput[] = {{"type", Into<&Item::type>},
                                                   {"call_id", Into<&Item::call_id>},
                                                   {"output", ApplyOutput},
                                                   {"name", Into<&Item::name>},
                                                   {"id", nullptr},
                                                   {"status", nullptr}};
// What is encrypted is another service's, and nobody else can read it.
constexpr Parameter<Item> kReasoning[] = {{"type", Into<&Item::type>},    {"summary", ApplySummary}, {"content", ApplyReasoning},
                                          {"encrypted_content", nullptr}, {"id", nullptr},           {"status", nullptr}};

constexpr std::string_view kNeededInMessage[] = {"role", "content"};
constexpr std::string_view kNeededInCall[] = {"name", "arguments", "call_id"};
constexpr std::string_view kNeededInOutput[] = {"call_id", "output"};

constexpr TypedObject<Item> kItems[] = {{"message", kMessage, kNeededInMessage},
                                        {"function_call", kFunctionCall, kNeededInCall},
                                        {"function_call_output", kFunctionCallOutput, kNeededInOutput},
                                        {"reasoning", kReasoning, {}}};

absl::Status ReadItem(const Json& json, Item& item) {
  if (json.is_object() && json.value("type", Json()) == "item_reference") {
    return InvalidArgument(".type: nothing is kept of answers that an item_reference could name; send the items themselves, ",
                           "as clients do that are told store: false");
  }
  const bool is_message = json.is_object() && HasMember(json, "role") && !HasMember(json, "type");
  return is_message ? ReadTyped(json, item.type, kItems, item) : ReadTyped(json, kItems, item);
}

// Takes "messages[3]" off a path: 3. nullopt where it does not begin so.
std::optional<size_t> TakeIndex(std::string_view name, std::string_view& path) {
  if (!path.starts_with(name) || path.substr(name.size(), 1) != "[") return std::nullopt;
  const std::string_view rest = path.substr(name.size() + 1);
  size_t index = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), index);
  if (error != std::errc() || end == rest.data() + rest.size() || *end != ']') return std::nullopt;
  path = rest.substr(static_cast<size_t>(end - rest.data()) + 1);
  return index;
}

// What an item calls the fields of a message.
std::string_view MemberOf(std::string_view field, bool of_tool) {
  if (field == ".id" || field == ".tool_call_id") return ".call_id";
  if (field == ".reasoning") return "";
  return of_tool && field.starts_with(".content") ? ".output" : field;
}

}  // namespace

class Input::Reader {
 public:
  explicit Reader(Input& input) : input_(input) {}

  absl::Status Read(const Json& json) {
    Item item;
    MOED_RETURN_IF_ERROR(ReadItem(json, item));
    if (item.type == "message") AddMessage(std::move(item));
    if (item.type == "function_call") AddCall(std::move(item));
    if (item.type == "function_call_output") AddOutput(std::move(item));
    if (item.type == "reasoning") AddReasoning(item);
    ++item_;
    return absl::OkStatus();
  }

 private:
  ChatMessage& Begin(std::string_view role) {
    input_.places_.push_back({.item = item_, .of_tool = role == kTool, .calls = {}});
    ChatMessage& message = *input_.messages_.Add();
    message.set_role(role.data(), role.size());
    return message;
  }

  // The one that what comes next belongs to, where an assistant's is open.
  ChatMessage* Last(std::string_view role) {
    const bool open = !input_.messages_.empty() && input_.messages_.rbegin()->role() == role;
    return open ? &*input_.messages_.rbegin() : nullptr;
  }

  // An answer is its reasoning, its text and its calls, in this order: what has more than reasoning is another's.
  ChatMessage& BeginOfAnswer() {
    ChatMessage* last = Last(kAssistant);
    return last != nullptr && last->content().empty() && last->tool_calls().empty() ? *last : Begin(kAssistant);
  }

  // Templates have a place for one system message, which is the first of all.
  ChatMessage& SystemMessage() {
    ChatMessage* last = input_.messages_.size() == 1 ? Last(kSystem) : nullptr;
    return last == nullptr ? Begin(kSystem) : *last;
  }

  void AddMessage(Item item) {
    const bool of_system = item.role == kSystem || item.role == "developer";
    ChatMessage& message = item.role == kAssistant ? BeginOfAnswer() : of_system ? SystemMessage() : Begin(item.role);
    for (std::string& text : item.texts) message.add_content()->set_text(std::move(text));
  }

  void AddCall(Item item) {
    ChatMessage* last = Last(kAssistant);
    ChatMessage& message = last != nullptr ? *last : Begin(kAssistant);
    input_.places_.back().calls.push_back(item_);
    names_.try_emplace(item.call_id, item.name);
    auto& call = *message.add_tool_calls();
    call.set_id(std::move(item.call_id));
    call.set_name(std::move(item.name));
    call.set_arguments(std::move(item.arguments));
  }

  void AddOutput(Item item) {
    ChatMessage& message = Begin(kTool);
    const auto name = names_.find(item.call_id);
    if (item.name.empty() && name != names_.end()) item.name = name->second;
    message.set_name(std::move(item.name));
    message.set_tool_call_id(std::move(item.call_id));
    for (std::string& text : item.texts) message.add_content()->set_text(std::move(text));
  }

  // Of a service that hides the reasoning itself there is a summary.
  void AddReasoning(const Item& item) {
    const std::string& text = item.reasoning.empty() ? item.summary : item.reasoning;
    if (!text.empty()) BeginOfAnswer().mutable_reasoning()->append(text);
  }

  Input& input_;
  int item_ = 0;
  absl::flat_hash_map<std::string, std::string> names_;  // of calls by their ids, of the first one that has it
};

absl::Status Input::Read(const Json& input) {
  if (input.is_string()) {
    ChatMessage& message = *messages_.Add();
    message.set_role("user");
    message.add_content()->set_text(input.get_ref<const std::string&>());
    places_.emplace_back();
    return absl::OkStatus();
  }
  if (!input.is_array()) return InvalidArgument(ShownJson(input), " is neither a string nor an array of items");
  Reader reader(*this);
  return ReadElements(input, [&](const Json& item) { return reader.Read(item); });
}

void Input::Instruct(std::string instructions) {
  const bool goes_on = !messages_.empty() && messages_.begin()->role() == kSystem;
  BeginWithSystem(std::move(instructions), messages_);
  if (goes_on) {
    for (auto& part : *messages_[1].mutable_content()) *messages_[0].add_content() = std::move(part);
    messages_.DeleteSubrange(1, 1);
    return;
  }
  places_.insert(places_.begin(), Place());
  instructed_ = true;
}

std::string Input::PlaceOf(std::string_view path) const {
  const auto message = TakeIndex("messages", path);
  if (!message || *message >= places_.size()) return "";
  if (*message == 0 && instructed_) return "instructions";
  const Place& place = places_[*message];
  if (place.item == kNoItem) return "input";
  std::string_view of_call = path.substr(std::min<size_t>(path.size(), 1));
  const auto call = TakeIndex("tool_calls", of_call);
  if (call && *call < place.calls.size()) return StrCat("input[", place.calls[*call], "]", MemberOf(of_call, false));
  return StrCat("input[", place.item, "]", MemberOf(path, place.of_tool));
}

}  // namespace moed::http
