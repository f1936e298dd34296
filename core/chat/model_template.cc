#include "core/chat/model_template.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>

#include "core/base/status.h"
#include "core/chat/json.h"

namespace moed::chat {
namespace {

constexpr Limits kLimitsOfTrial = {.steps = 1'000'000, .output_bytes = 1 << 18, .memory_bytes = 1 << 20};
constexpr std::string_view kArgument = "moed_argument";
constexpr std::string_view kArguments = R"({"moed_argument": "x"})";
constexpr std::string_view kSaid = "moed_said";

Value DictOf(std::initializer_list<std::pair<const char*, Value>> items) {
  std::vector<Dict::Entry> entries;
  for (const auto& [key, value] : items) entries.emplace_back(MakeText(key), value);
  return MakeDict(std::move(entries));
}

Value Said(const char* role, std::string_view content) {
  return DictOf({{"role", MakeText(role)}, {"content", MakeText(std::string(content))}});
}

bool Contains(const absl::StatusOr<std::string>& text, std::string_view part) {
  return text.ok() && text->find(part) != std::string::npos;
}

}  // namespace

absl::StatusOr<ModelTemplate> ModelTemplate::Parse(std::string_view source, std::string_view named_tokens) {
  MOED_ASSIGN_OR_RETURN(Template parsed, Template::Parse(source));
  MOED_ASSIGN_OR_RETURN(Value tokens, ValueFromJson(named_tokens.empty() ? "{}" : named_tokens));
  if (!tokens.is(Kind::kDict)) return InvalidArgument("the names of tokens are ", TypeName(tokens), ", expected a dict");
  ModelTemplate made(std::move(parsed), std::move(tokens));
  // What shows any role, and says no word of this one, was not taught it.
  made.system_form_ = made.TrySystem(/*speaks_of_developers=*/source.find("developer") != std::string_view::npos);
  constexpr CallForm kForms[] = {{}, {.content_is_none = true}, {.arguments_are_text = true}, {true, true}};
  const auto shown = std::ranges::find_if(kForms, [&](const CallForm& form) { return made.Shows(form); });
  if (shown != std::end(kForms)) made.call_form_ = *shown;
  made.call_form_.text_joins_reasoning = made.TextJoinsReasoning(made.call_form_);
  return made;
}

absl::StatusOr<std::string> ModelTemplate::Try(std::vector<Value> messages, Value tools) const {
  const std::vector<Dict::Entry> conversation = {{MakeText("messages"), MakeList(std::move(messages))},
                                                 {MakeText("tools"), std::move(tools)},
                                                 {MakeText("add_generation_prompt"), Value(true)}};
  MOED_ASSIGN_OR_RETURN(MarkedText rendered, Render(conversation, {.limits = kLimitsOfTrial}));
  return std::move(rendered.text);
}

bool ModelTemplate::ShowsAll(std::initializer_list<const char*> roles) const {
  std::vector<Value> messages;
  for (const char* role : roles) messages.push_back(Said(role, StrCat(kSaid, messages.size())));
  const auto text = Try(messages);
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!Contains(text, StrCat(kSaid, i))) return false;
  }
  return true;
}

SystemForm ModelTemplate::TrySystem(bool speaks_of_developers) const {
  SystemForm form;
  if (!ShowsAll({"user"})) return form;  // trying shows nothing of such a template
  form.knows_developers = speaks_of_developers && ShowsAll({"developer", "user"});
  form.leads_alone = !ShowsAll({"system", form.knows_developers ? "developer" : "system", "user"});
  form.later_is_user = !ShowsAll({"system", "user", "system", "assistant", "system", "user"});
  form.users_alternate = !ShowsAll({"user", "user"});
  return form;
}

absl::StatusOr<std::string> ModelTemplate::TryCall(const CallForm& form, std::string_view reasoning,
                                                   std::string_view text) const {
  const auto dict = ValueFromJson(kArguments);
  const Value arguments = form.arguments_are_text ? MakeText(std::string(kArguments)) : *dict;
  const Value type = MakeText("function"), name = MakeText("f"), id = MakeText("abcdefghi");
  const Value parameters = DictOf({{"type", MakeText("object")}, {"properties", MakeDict({})}});
  const Value tool =
      DictOf({{"type", type}, {"function", DictOf({{"name", name}, {"description", name}, {"parameters", parameters}})}});
  const Value call = DictOf({{"type", type}, {"id", id}, {"function", DictOf({{"name", name}, {"arguments", arguments}})}});
  const Value content = form.content_is_none && text.empty() ? Value() : MakeText(std::string(text));
  std::vector<Dict::Entry> answer = DictOf({{"role", MakeText("assistant")}, {"content", content}}).dict().entries();
  if (!reasoning.empty()) {
    const Value why = MakeText(std::string(reasoning));
    for (const std::string_view key : kReasoningKeys) answer.emplace_back(MakeText(std::string(key)), why);
  }
  answer.emplace_back(MakeText("tool_calls"), MakeList({call}));
  const Value result = DictOf({{"role", MakeText("tool")}, {"content", MakeText("x")}, {"tool_call_id", id}, {"name", name}});
  return Try({Said("user", "hi"), MakeDict(std::move(answer)), result}, MakeList({tool}));
}

bool ModelTemplate::Shows(const CallForm& form) const {
  const auto text = TryCall(form, "", "");
  if (form.arguments_are_text) return Contains(text, kArguments);
  // As Python shows a dict, no model was taught.
  return Contains(text, kArgument) && !Contains(text, StrCat("'", kArgument, "'"));
}

bool ModelTemplate::TextJoinsReasoning(const CallForm& form) const {
  return !TryCall(form, "why", kSaid).ok() && Contains(TryCall(form, StrCat("why\n", kSaid), ""), kSaid);
}

absl::StatusOr<MarkedText> ModelTemplate::Render(const std::vector<Dict::Entry>& conversation,
                                                 const RenderOptions& options) const {
  std::vector<Dict::Entry> variables = named_tokens_.dict().entries();
  variables.insert(variables.end(), conversation.begin(), conversation.end());
  return template_.Render(MakeDict(std::move(variables)), options);
}

}  // namespace moed::chat
