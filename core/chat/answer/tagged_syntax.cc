// Calls whose values stand between tags: strings as they are, everything else as JSON.
#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "core/base/json_value.h"
#include "core/base/status.h"
#include "core/chat/answer/call_syntax.h"
#include "core/chat/answer/schema_words.h"
#include "core/grammar/string_formats.h"

namespace moed::chat {
namespace {

using grammar::InOrder;
using grammar::Json;
using grammar::Literal;
using grammar::Marker;
using grammar::OneOf;
using grammar::Optional;
using grammar::Regex;
using grammar::Repeat;
using grammar::Syntax;

constexpr int kMostDepth = 16;

absl::Status Refused(std::string_view place, std::string_view what) {
  return InvalidArgument("at ", place.empty() ? "/" : place, ": ", what,
                         " cannot be held to where a model writes values without quotes, as this one does");
}

// Whether a value may be a string; a schema that says nothing of it accepts one.
bool TakesString(const Json& root, const Json& schema, int depth = 0) {
  if (!schema.is_object() || depth > kMostDepth) return schema != Json(false);
  const auto any_of = [&](const Json& list, auto takes) {
    return list.is_array() && std::any_of(list.begin(), list.end(), takes);
  };
  const auto of_schema = [&](const Json& one) { return TakesString(root, one, depth + 1); };
  if (schema.contains("type")) {
    const Json& type = schema["type"];
    return type == "string" || any_of(type, [](const Json& one) { return one == "string"; });
  }
  if (schema.contains("const")) return schema["const"].is_string();
  if (schema.contains("enum")) return any_of(schema["enum"], [](const Json& one) { return one.is_string(); });
  for (const char* keyword : {"anyOf", "oneOf"}) {
    if (schema.contains(keyword)) return any_of(schema[keyword], of_schema);
  }
  if (schema.contains("$ref") && schema["$ref"].is_string()) {
    const Json* target = grammar::Referred(root, schema["$ref"].get<std::string>());
    return target == nullptr || of_schema(*target);
  }
  return !schema.contains("properties") && !schema.contains("items") && !schema.contains("allOf") &&
         !schema.contains("minimum") && !schema.contains("maximum");
}

class TaggedSyntax {
 public:
  explicit TaggedSyntax(const TagSyntax& tags) : tags_(tags) {}

  absl::StatusOr<Syntax> Call(const CallableTool& tool) const {
    std::vector<Syntax> parts = {Literal(tool.name), tags_.name_close.empty() ? Literal("") : Marker(tags_.name_close)};
    if (tool.schema == nullptr) {
      parts.push_back(AnyParameters());
    } else {
      auto parameters = Parameters(*tool.schema, tool.schema);
      if (!parameters.ok()) return grammar::FieldRefusal(tool.field, parameters.status());
      parts.push_back(*std::move(parameters));
    }
    parts.push_back(Gap());
    parts.push_back(Marker(tags_.call_close));
    Syntax call = InOrder(std::move(parts));
    call.field = tool.field;
    return call;
  }

 private:
  Syntax UpToClose() const { return grammar::UpTo(tags_.value_close); }

  // `key`: how it is written. A value of JSON stands between other tags in some forms.
  Syntax Parameter(Syntax key, bool json, Syntax value) const {
    std::vector<Syntax> parts = {Gap(), Marker(tags_.key_open), std::move(key)};
    parts.push_back(Marker(json && !tags_.json_key_close.empty() ? tags_.json_key_close : tags_.key_close));
    if (!tags_.value_open.empty()) {
      parts.push_back(Gap());
      parts.push_back(Marker(tags_.value_open));
    }
    if (tags_.lines) parts.push_back(Literal("\n"));
    parts.push_back(std::move(value));
    return InOrder(std::move(parts));
  }

  Syntax Closed(Syntax value) const {
    return InOrder({std::move(value), Literal(tags_.lines ? "\n" : ""), Marker(tags_.value_close)});
  }

  Syntax AnyParameters() const {
    const Syntax key = Regex("[A-Za-z0-9_.-]{1,64}");
    std::vector<Syntax> values = {Parameter(key, false, UpToClose())};
    if (!tags_.json_key_close.empty()) {
      static const auto& kAny =
          *new auto(std::make_shared<const Json>(Json{{"type", {"object", "array", "number", "boolean", "null"}}}));
      values.push_back(Parameter(key, true, Closed(grammar::SchemaAt(kAny, ""))));
    }
    return Repeat(OneOf(std::move(values)), 0, AnswerRules::kNoMost);
  }

  absl::StatusOr<Syntax> Parameters(const Json& schema, const std::shared_ptr<const Json>& root) const {
    if (!schema.is_object()) return Refused("", "a schema that is no object");
    if (const std::string other = OtherKeyword(schema, {"type", "properties", "required", "additionalProperties"});
        !other.empty())
      return Refused("", StrCat("'", other, "'"));
    const Json properties = schema.value("properties", Json::object());
    const Json required = schema.value("required", Json::array());
    if (!properties.is_object() || !required.is_array()) return Refused("", "what is no schema of an object");
    for (const Json& name : required) {
      if (!name.is_string() || !properties.contains(name.get<std::string>()))
        return Refused("/required", "what 'properties' do not describe");
    }
    std::vector<Syntax> parts;
    for (const auto& [name, property] : properties.items()) {
      const std::string pointer = PropertyPointer(name);
      if (name.find_first_of("<>\"\n") != std::string::npos) return Refused(pointer, "such a name");
      MOED_ASSIGN_OR_RETURN(Syntax parameter, PropertyOf(name, property, pointer, root));
      const bool needed = std::find(required.begin(), required.end(), Json(name)) != required.end();
      parts.push_back(needed ? std::move(parameter) : Optional(std::move(parameter)));
    }
    return InOrder(std::move(parts));
  }

  absl::StatusOr<Syntax> PropertyOf(const std::string& name, const Json& property, const std::string& pointer,
                                    const std::shared_ptr<const Json>& root) const {
    if (!TakesString(*root, property)) {
      Syntax json = grammar::SchemaAt(root, pointer);
      // Templates show them in Python's words, and so models write them.
      const bool boolean = property.is_object() && property.value("type", Json()) == "boolean";
      if (boolean && OtherKeyword(property, {"type"}).empty()) json = OneOf({json, Literal("True"), Literal("False")});
      return Parameter(Literal(name), true, Closed(std::move(json)));
    }
    if (!property.is_object()) return Parameter(Literal(name), false, UpToClose());
    if (property.contains("enum") || property.contains("const")) {
      MOED_ASSIGN_OR_RETURN(Syntax values, Values(property, pointer));
      return Parameter(Literal(name), false, Closed(std::move(values)));
    }
    if (Asserts(property, "format") && property.value("type", Json()) == "string" &&
        OtherKeyword(property, {"type", "format"}).empty() && property["format"].is_string()) {
      const std::string& pattern = *grammar::FormatPattern(property["format"].get_ref<const std::string&>());
      return Parameter(Literal(name), false, Closed(Regex(pattern)));
    }
    MOED_RETURN_IF_ERROR(CheckText(property, pointer));
    return Parameter(Literal(name), false, UpToClose());
  }

  absl::StatusOr<Syntax> Values(const Json& property, const std::string& pointer) const {
    if (const std::string other = OtherKeyword(property, {"type", "enum", "const"}); !other.empty())
      return Refused(pointer, StrCat("'", other, "' beside values"));
    const Json values = property.contains("const") ? Json::array({property["const"]}) : property["enum"];
    std::vector<Syntax> parts;
    for (const Json& value : values) {
      if (!value.is_string() || value.get_ref<const std::string&>().find(tags_.value_close) != std::string::npos)
        return Refused(pointer, "a list of values that has strings and others");
      parts.push_back(Literal(value.get_ref<const std::string&>()));
    }
    return OneOf(std::move(parts));
  }

  // Of strings, or of strings beside others of which every text is one: what is said of their length or members cannot be held.
  static absl::Status CheckText(const Json& property, const std::string& pointer) {
    const Json none = Json::array();
    for (const char* keyword : {"anyOf", "oneOf"}) {
      for (const Json& one : property.value(keyword, none)) {
        if (!one.is_object()) return Refused(pointer, StrCat("'", keyword, "'"));
        MOED_RETURN_IF_ERROR(CheckText(one, StrCat(pointer, "/", keyword)));
      }
    }
    if (const std::string other = OtherKeyword(property, {"type", "anyOf", "oneOf"}); !other.empty())
      return Refused(pointer, StrCat("'", other, "'"));
    const Json type = property.value("type", Json());
    const auto is_wider = [](const Json& one) { return one == "string" || one == "null" || one == "boolean" || one == "number"; };
    if (type.is_null() || is_wider(type) || (type.is_array() && std::all_of(type.begin(), type.end(), is_wider)))
      return absl::OkStatus();
    return Refused(pointer, StrCat("the type ", type.is_array() ? "list" : ShownJson(type), " beside strings"));
  }

  const TagSyntax& tags_;
};

}  // namespace

absl::StatusOr<Syntax> TaggedCallSyntax(const Calls& calls, const TagSyntax& tags, bool name_opened) {
  std::vector<Syntax> alternatives;
  for (const CallableTool& tool : calls.tools) {
    MOED_ASSIGN_OR_RETURN(Syntax call, TaggedSyntax(tags).Call(tool));
    alternatives.push_back(std::move(call));
  }
  const Syntax named = OneOf(std::move(alternatives));
  const Syntax opened = tags.name_open.empty() ? named : InOrder({Marker(tags.name_open), named});
  std::vector<Syntax> parts = {name_opened ? named : InOrder({Gap(), opened})};
  if (tags.many) {
    const int further = calls.most == AnswerRules::kNoMost ? calls.most : calls.most - 1;
    parts.push_back(Repeat(InOrder({Gap(), opened}), 0, further));
  }
  if (!tags.section_close.empty()) {
    parts.push_back(Gap());
    parts.push_back(Marker(tags.section_close));
  }
  return InOrder(std::move(parts));
}

}  // namespace moed::chat
