// Calls whose values stand between tags: strings as they are, everything else as JSON.
#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/chat/answer/call_syntax.h"
#include "core/chat/answer/schema_words.h"
#include "core/chat/answer/tagged_text.h"

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

  Syntax AnyParameters() const {
    const Syntax key = Regex("[A-Za-z0-9_.-]{1,64}");
    std::vector<Syntax> values = {Parameter(key, false, AnyText(tags_))};
    if (!tags_.json_key_close.empty()) {
      static const auto& kAny =
          *new auto(std::make_shared<const Json>(Json{{"type", {"object", "array", "number", "boolean", "null"}}}));
      values.push_back(Parameter(key, true, ClosedValue(tags_, grammar::SchemaAt(kAny, ""))));
    }
    return Repeat(OneOf(std::move(values)), 0, AnswerRules::kNoMost);
  }

  absl::StatusOr<Syntax> Parameters(const Json& schema, const std::shared_ptr<const Json>& root) const {
    if (!schema.is_object()) return RefusedBetweenTags("", "a schema that is no object");
    if (const std::string other = OtherKeyword(schema, {"type", "properties", "required", "additionalProperties"});
        !other.empty())
      return RefusedBetweenTags("", StrCat("'", other, "'"));
    const Json properties = schema.value("properties", Json::object());
    const Json required = schema.value("required", Json::array());
    if (!properties.is_object() || !required.is_array()) return RefusedBetweenTags("", "what is no schema of an object");
    for (const Json& name : required) {
      if (!name.is_string() || !properties.contains(name.get<std::string>()))
        return RefusedBetweenTags("/required", "what 'properties' do not describe");
    }
    TaggedText text(*root, tags_);
    std::vector<Syntax> parts;
    for (const auto& [name, property] : properties.items()) {
      const std::string pointer = PropertyPointer(name);
      if (name.find_first_of("<>\"\n") != std::string::npos) return RefusedBetweenTags(pointer, "such a name");
      MOED_ASSIGN_OR_RETURN(Syntax parameter, PropertyOf(name, property, pointer, root, text));
      const bool needed = std::find(required.begin(), required.end(), Json(name)) != required.end();
      parts.push_back(needed ? std::move(parameter) : Optional(std::move(parameter)));
    }
    return InOrder(std::move(parts));
  }

  absl::StatusOr<Syntax> PropertyOf(const std::string& name, const Json& property, const std::string& pointer,
                                    const std::shared_ptr<const Json>& root, TaggedText& text) const {
    if (!text.IsText(property)) {
      Syntax json = grammar::SchemaAt(root, pointer);
      // Templates show them in Python's words, and so models write them.
      const bool boolean = property.is_object() && property.value("type", Json()) == "boolean";
      if (boolean && OtherKeyword(property, {"type"}).empty()) json = OneOf({json, Literal("True"), Literal("False")});
      return Parameter(Literal(name), true, ClosedValue(tags_, std::move(json)));
    }
    MOED_ASSIGN_OR_RETURN(TaggedText::Value value, text.Of(property, pointer));
    Syntax parameter = Parameter(Literal(name), false, std::move(value.text));
    if (!value.or_null) return parameter;
    return OneOf({std::move(parameter), Parameter(Literal(name), true, ClosedValue(tags_, Literal("null")))});
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
