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

Value DictOf(std::initializer_list<std::pair<const char*, Value>> items) {
  std::vector<Dict::Entry> entries;
  for (const auto& [key, value] : items) entries.emplace_back(MakeText(key), value);
  return MakeDict(std::move(entries));
}

}  // namespace

absl::StatusOr<ModelTemplate> ModelTemplate::Parse(std::string_view source, std::string_view named_tokens) {
  MOED_ASSIGN_OR_RETURN(Template parsed, Template::Parse(source));
  MOED_ASSIGN_OR_RETURN(Value tokens, ValueFromJson(named_tokens.empty() ? "{}" : named_tokens));
  if (!tokens.is(Kind::kDict)) return InvalidArgument("the names of tokens are ", TypeName(tokens), ", expected a dict");
  ModelTemplate made(std::move(parsed), std::move(tokens));
  made.knows_developer_ = source.find("developer") != std::string_view::npos;
  constexpr CallForm kForms[] = {{}, {.content_is_none = true}, {.arguments_are_text = true}, {true, true}};
  const auto shown = std::ranges::find_if(kForms, [&](const CallForm& form) { return made.Shows(form); });
  if (shown != std::end(kForms)) made.call_form_ = *shown;
  return made;
}

bool ModelTemplate::Shows(const CallForm& form) const {
  const auto dict = ValueFromJson(kArguments);
  const Value arguments = form.arguments_are_text ? MakeText(std::string(kArguments)) : *dict;
  const Value type = MakeText("function"), name = MakeText("f"), id = MakeText("abcdefghi");
  const Value parameters = DictOf({{"type", MakeText("object")}, {"properties", MakeDict({})}});
  const Value tool =
      DictOf({{"type", type}, {"function", DictOf({{"name", name}, {"description", name}, {"parameters", parameters}})}});
  const Value call = DictOf({{"type", type}, {"id", id}, {"function", DictOf({{"name", name}, {"arguments", arguments}})}});
  const Value content = form.content_is_none ? Value() : MakeText("");
  const Value messages =
      MakeList({DictOf({{"role", MakeText("user")}, {"content", MakeText("hi")}}),
                DictOf({{"role", MakeText("assistant")}, {"content", content}, {"tool_calls", MakeList({call})}}),
                DictOf({{"role", MakeText("tool")}, {"content", MakeText("x")}, {"tool_call_id", id}, {"name", name}})});
  const std::vector<Dict::Entry> conversation = {
      {MakeText("messages"), messages}, {MakeText("tools"), MakeList({tool})}, {MakeText("add_generation_prompt"), Value(true)}};
  const auto rendered = Render(conversation, {.limits = kLimitsOfTrial});
  if (!rendered.ok()) return false;
  const std::string& text = rendered->text;
  if (form.arguments_are_text) return text.find(kArguments) != std::string::npos;
  // As Python shows a dict, no model was taught.
  return text.find(kArgument) != std::string::npos && text.find(StrCat("'", kArgument, "'")) == std::string::npos;
}

absl::StatusOr<MarkedText> ModelTemplate::Render(const std::vector<Dict::Entry>& conversation,
                                                 const RenderOptions& options) const {
  std::vector<Dict::Entry> variables = named_tokens_.dict().entries();
  variables.insert(variables.end(), conversation.begin(), conversation.end());
  return template_.Render(MakeDict(std::move(variables)), options);
}

}  // namespace moed::chat
