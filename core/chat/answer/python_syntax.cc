// Calls written as Python: each argument is Python or JSON.
#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/chat/answer/call_syntax.h"
#include "core/chat/answer/schema_words.h"

namespace moed::chat {
namespace {

using grammar::InOrder;
using grammar::Json;
using grammar::Literal;
using grammar::OneOf;
using grammar::Optional;
using grammar::Regex;
using grammar::Repeat;
using grammar::Syntax;

Syntax PythonString() { return Regex("'([^'\\\\\\x00-\\x1f]|\\\\[nrt'\"\\\\])*'"); }

Syntax AnyValue() {
  static const auto& kAny = *new auto(std::make_shared<const Json>(Json::object()));
  return OneOf({grammar::SchemaAt(kAny, ""), PythonString(), Literal("True"), Literal("False"), Literal("None")});
}

Syntax List(const Syntax& item) {
  const Syntax further = Repeat(InOrder({Regex(", ?"), item}), 0, AnswerRules::kNoMost);
  return InOrder({Literal("["), Optional(InOrder({item, further})), Literal("]")});
}

// What the schema at the pointer accepts, in JSON, and in Python's words where that is as simple.
Syntax ValueSyntax(const Json& schema, const std::shared_ptr<const Json>& root, const std::string& pointer) {
  std::vector<Syntax> parts = {grammar::SchemaAt(root, pointer)};
  const Json type = schema.is_object() ? schema.value("type", Json()) : Json();
  if (type.is_string() && OtherKeyword(schema, {"type"}).empty()) {
    if (type == "string") parts.push_back(PythonString());
    if (type == "boolean") parts.insert(parts.end(), {Literal("True"), Literal("False")});
    if (type == "null") parts.push_back(Literal("None"));
    if (type == "array") parts.push_back(List(AnyValue()));
  }
  if (type == "array" && schema.contains("items") && OtherKeyword(schema, {"type", "items"}).empty())
    parts.push_back(List(ValueSyntax(schema["items"], root, StrCat(pointer, "/items"))));
  if (schema.is_object() && OtherKeyword(schema, {"type", "enum"}).empty()) {
    for (const Json& value : schema.value("enum", Json::array())) {
      const std::string text = value.is_string() ? value.get<std::string>() : "'";
      if (text.find_first_of("'\\\n\r\t") == std::string::npos) parts.push_back(Literal(StrCat("'", text, "'")));
    }
  }
  return OneOf(std::move(parts));
}

Syntax Argument(std::string_view name, Syntax value) { return InOrder({Literal(StrCat(name, "=")), std::move(value)}); }

Syntax AnyArguments() {
  const Syntax one = InOrder({Regex("[A-Za-z_][A-Za-z0-9_]{0,63}="), AnyValue()});
  return Optional(InOrder({one, Repeat(InOrder({Regex(", ?"), one}), 0, AnswerRules::kNoMost)}));
}

bool IsArgumentName(std::string_view name) { return !name.empty() && std::all_of(name.begin(), name.end(), IsNameCharacter); }

// In the schema's order; those that need not come may be left out.
absl::StatusOr<Syntax> Arguments(const CallableTool& tool) {
  const Json& schema = *tool.schema;
  const auto refused = [](std::string_view what) {
    return InvalidArgument("at /: ", what, " cannot be held to where a model writes calls as Python, as this one does");
  };
  if (!schema.is_object() || !OtherKeyword(schema, {"type", "properties", "required", "additionalProperties"}).empty())
    return refused(schema.is_object() ? "more than 'properties' and 'required'" : "a schema that is no object");
  const Json properties = schema.value("properties", Json::object()), required = schema.value("required", Json::array());
  if (!properties.is_object() || !required.is_array()) return refused("what is no schema of an object");
  for (const Json& name : required) {
    if (!name.is_string() || !properties.contains(name.get<std::string>()))
      return refused("what 'required' names and 'properties' do not");
  }
  // From the last on: what follows where an argument came before, and where none did.
  Syntax further = Literal(""), first = Literal("");
  for (auto property = properties.rbegin(); property != properties.rend(); ++property) {
    const std::string name = property.key();
    if (!IsArgumentName(name)) return refused(StrCat("the name '", name, "'"));
    const Syntax one = Argument(name, ValueSyntax(property.value(), tool.schema, PropertyPointer(name)));
    const bool needed = std::find(required.begin(), required.end(), Json(name)) != required.end();
    Syntax begun = InOrder({one, further});
    first = needed ? std::move(begun) : OneOf({std::move(begun), std::move(first)});
    Syntax next = InOrder({Regex(", ?"), one});
    further = InOrder({needed ? std::move(next) : Optional(std::move(next)), std::move(further)});
  }
  return first;
}

}  // namespace

absl::StatusOr<Syntax> PythonCallSyntax(const Calls& calls, bool bracket_came) {
  std::vector<Syntax> named;
  for (const CallableTool& tool : calls.tools) {
    Syntax arguments = AnyArguments();
    if (tool.schema != nullptr) {
      auto held = Arguments(tool);
      if (!held.ok()) return grammar::FieldRefusal(tool.field, held.status());
      arguments = *std::move(held);
    }
    Syntax call = InOrder({Literal(StrCat(tool.name, "(")), std::move(arguments), Literal(")")});
    call.field = tool.field;
    named.push_back(std::move(call));
  }
  const Syntax one = OneOf(std::move(named));
  const int further = calls.most == AnswerRules::kNoMost ? calls.most : calls.most - 1;
  return InOrder({Literal(bracket_came ? "" : "["), one, Repeat(InOrder({Regex(", ?"), one}), 0, further), Literal("]")});
}

}  // namespace moed::chat
