// Calls whose arguments are literals of Python or of Gemma. Both may have JSON's as well.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "core/base/status.h"
#include "core/chat/answer/call_reader.h"
#include "core/chat/answer/call_syntax.h"
#include "core/chat/answer/literal_value.h"
#include "core/chat/answer/schema_words.h"

namespace moed::chat {
namespace {

using grammar::InOrder;
using grammar::Json;
using grammar::Literal;
using grammar::Marker;
using grammar::OneOf;
using grammar::Optional;
using grammar::Regex;
using grammar::Syntax;

bool IsArgumentName(std::string_view name) {
  const auto fits = [](char c) { return c != ':' && IsNameCharacter(c); };
  return !name.empty() && std::all_of(name.begin(), name.end(), fits);
}

// As Gemma's template sorts them.
bool ComesBefore(std::string_view a, std::string_view b) {
  const auto less = [](char c, char d) { return absl::ascii_tolower(c) < absl::ascii_tolower(d); };
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(), less);
}

Syntax WithCommas(const Syntax& one, int most = AnswerRules::kNoMost) { return Several(one, Regex(", ?"), most); }
Syntax List(const Syntax& item) { return InOrder({Literal("["), Optional(WithCommas(item)), Literal("]")}); }

struct Part {
  Syntax syntax;
  bool needed;
};

// Some of the parts in their order, with commas between them.
Syntax SomeOf(const std::vector<Part>& parts) {
  const Syntax comma = Regex(", ?");
  const auto if_needed = [](const Part& part, Syntax syntax) { return part.needed ? syntax : Optional(std::move(syntax)); };
  const auto needed = std::find_if(parts.begin(), parts.end(), [](const Part& part) { return part.needed; });
  std::vector<Syntax> further;  // each after another one
  for (const Part& part : parts) further.push_back(if_needed(part, InOrder({comma, part.syntax})));
  const auto from = [&](auto begin, Syntax before) {  // the one at `begin`, and those after it
    std::vector<Syntax> all = {std::move(before), begin->syntax};
    all.insert(all.end(), further.begin() + (begin - parts.begin()) + 1, further.end());
    return InOrder(std::move(all));
  };
  if (needed != parts.end()) {
    std::vector<Syntax> before;
    for (auto part = parts.begin(); part != needed; ++part) before.push_back(Optional(InOrder({part->syntax, comma})));
    return from(needed, InOrder(std::move(before)));
  }
  std::vector<Syntax> firsts = {Literal("")};
  for (auto part = parts.begin(); part != parts.end(); ++part) firsts.push_back(from(part, Literal("")));
  return OneOf(std::move(firsts));
}

class LiteralSyntax {
 public:
  explicit LiteralSyntax(const Literals& literals) : literals_(literals), quoted_(!literals.quote.empty()) {}

  absl::StatusOr<Syntax> Arguments(const CallableTool& tool) {
    if (tool.schema == nullptr) return AnyArguments(kDepth);
    auto arguments = Arguments(*tool.schema, tool.schema, "");
    if (!arguments.ok()) return grammar::FieldRefusal(tool.field, arguments.status());
    return arguments;
  }

 private:
  static constexpr int kDepth = 1;  // of lists and dicts that no schema describes; deeper ones are JSON

  Syntax Text(const Syntax& text) const { return InOrder({Marker(literals_.quote), text, Marker(literals_.quote)}); }
  Syntax AnyText() const {
    if (quoted_) return InOrder({Marker(literals_.quote), grammar::UpTo(literals_.quote)});
    return Regex("'([^'\\\\\\x00-\\x1f]|\\\\[nrt'\"\\\\])*'");
  }
  Syntax AnyArguments(int depth) const {
    const Syntax one = InOrder({Regex("[A-Za-z_][A-Za-z0-9_]{0,63}"), Literal(literals_.key_close), AnyValue(depth)});
    return Optional(WithCommas(one));
  }
  Syntax AnyValue(int depth) const {
    static const auto& kAny = *new auto(std::make_shared<const Json>(Json::object()));
    static const auto& kOne = *new auto(std::make_shared<const Json>(Json{{"type", {"number", "boolean", "null"}}}));
    std::vector<Syntax> parts = {grammar::SchemaAt(quoted_ && depth > 0 ? kOne : kAny, ""), AnyText()};
    for (const char* word : {"True", "False", "None"}) parts.push_back(Literal(word));
    if (depth > 0) parts.push_back(List(AnyValue(depth - 1)));
    if (depth > 0 && quoted_) parts.push_back(InOrder({Literal("{"), AnyArguments(depth - 1), Literal("}")}));
    return OneOf(std::move(parts));
  }

  // In the schema's order, which is that of the alphabet for Gemma; those that need not come may be left out.
  absl::StatusOr<Syntax> Arguments(const Json& schema, const std::shared_ptr<const Json>& root, const std::string& pointer) {
    const auto refused = [&](std::string_view what) {
      return InvalidArgument("at ", pointer.empty() ? "/" : pointer, ": ", what,
                             " cannot be held to where a model writes arguments one by one, as this one does");
    };
    if (!schema.is_object() || !OtherKeyword(schema, {"type", "properties", "required", "additionalProperties"}).empty())
      return refused(schema.is_object() ? "more than 'properties' and 'required'" : "a schema that is no object");
    const Json properties = schema.value("properties", Json::object()), required = schema.value("required", Json::array());
    if (!properties.is_object() || !required.is_array()) return refused("what is no schema of an object");
    for (const Json& name : required) {
      if (!name.is_string() || !properties.contains(name.get<std::string>()))
        return refused("what 'required' names and 'properties' do not");
    }
    std::vector<std::string> names;
    for (const auto& [name, property] : properties.items()) names.push_back(name);
    if (quoted_) std::sort(names.begin(), names.end(), ComesBefore);
    std::vector<Part> parts;
    for (const std::string& name : names) {
      if (!IsArgumentName(name)) return refused(StrCat("the name '", name, "'"));
      const Syntax value = Value(properties[name], root, StrCat(pointer, PropertyPointer(name)));
      const bool needed = std::find(required.begin(), required.end(), Json(name)) != required.end();
      parts.push_back({InOrder({Literal(StrCat(name, literals_.key_close)), value}), needed});
    }
    if (required.empty()) beginnings_ += parts.size() * parts.size() / 2;
    if (beginnings_ > grammar::ProgramBuilder::kMostInstructions) return refused("so many properties that may be left out");
    return SomeOf(parts);
  }

  // What the schema at the pointer accepts, as models write it where that is as simple, otherwise as JSON.
  Syntax Value(const Json& schema, const std::shared_ptr<const Json>& root, const std::string& pointer) {
    std::vector<Syntax> parts;
    const Json type = schema.is_object() ? schema.value("type", Json()) : Json();
    if (type.is_string() && OtherKeyword(schema, {"type"}).empty()) {
      if (type == "string") parts.push_back(AnyText());
      if (type == "array") parts.push_back(List(AnyValue(kDepth)));
      if (type == "object" && quoted_) parts.push_back(InOrder({Literal("{"), AnyArguments(kDepth), Literal("}")}));
    } else if (type == "array" && schema.contains("items") && OtherKeyword(schema, {"type", "items"}).empty()) {
      parts.push_back(List(Value(schema["items"], root, StrCat(pointer, "/items"))));
    } else if (type == "object" && quoted_) {
      if (auto arguments = Arguments(schema, root, pointer); arguments.ok())
        parts.push_back(InOrder({Literal("{"), *std::move(arguments), Literal("}")}));
    } else if (schema.is_object() && schema.contains("enum") && OtherKeyword(schema, {"type", "enum"}).empty()) {
      parts = Values(schema["enum"]);
    }
    if (!quoted_ || parts.empty()) parts.push_back(grammar::SchemaAt(root, pointer));
    if (type == "boolean" && OtherKeyword(schema, {"type"}).empty())
      parts.insert(parts.end(), {Literal("True"), Literal("False")});
    return OneOf(std::move(parts));
  }

  // None where one of them is no simple text.
  std::vector<Syntax> Values(const Json& values) const {
    std::vector<Syntax> parts;
    for (const Json& value : values) {
      const std::string text = value.is_string() ? value.get<std::string>() : "'";
      if (text.find_first_of("'<\\\n\r\t") != std::string::npos) return {};
      parts.push_back(quoted_ ? Text(Literal(text)) : Literal(StrCat("'", text, "'")));
    }
    return parts;
  }

  const Literals& literals_;
  const bool quoted_;
  size_t beginnings_ = 0;  // parts of what may follow each property that may be the first; each is an instruction at least
};

// Each tool's name and arguments, between which and after which stand `open` and `close`.
absl::StatusOr<Syntax> NamedCalls(const Calls& calls, const Literals& literals, std::string_view open, std::string_view close) {
  LiteralSyntax syntax(literals);
  std::vector<Syntax> named;
  for (const CallableTool& tool : calls.tools) {
    MOED_ASSIGN_OR_RETURN(Syntax arguments, syntax.Arguments(tool));
    Syntax call = InOrder({Literal(StrCat(tool.name, open)), std::move(arguments), Literal(close)});
    call.field = tool.field;
    named.push_back(std::move(call));
  }
  return OneOf(std::move(named));
}

}  // namespace

absl::StatusOr<Syntax> PythonCallSyntax(const Calls& calls, bool bracket_came) {
  MOED_ASSIGN_OR_RETURN(const Syntax one, NamedCalls(calls, kPython, "(", ")"));
  return InOrder({Literal(bracket_came ? "" : "["), WithCommas(one, calls.most), Literal("]")});
}

absl::StatusOr<Syntax> GemmaCallSyntax(const Calls& calls) {
  MOED_ASSIGN_OR_RETURN(Syntax one, NamedCalls(calls, kGemma, "{", "}"));
  return InOrder({Literal("call:"), std::move(one), Marker("<tool_call|>")});
}

}  // namespace moed::chat
