#include "core/chat/answer/tagged_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/json_value.h"
#include "core/base/status.h"
#include "core/chat/answer/schema_words.h"
#include "core/grammar/string_formats.h"

namespace moed::chat {
namespace {

using grammar::Json;
using grammar::Literal;
using grammar::Syntax;

constexpr const char* kAlternatives[] = {"anyOf", "oneOf"};

bool IsList(const Json& schema) { return schema.is_object() && (schema.contains("enum") || schema.contains("const")); }
bool IsNull(const Json& schema) {
  return schema.is_object() && schema.value("type", Json()) == "null" && OtherKeyword(schema, {"type"}).empty();
}

// Of strings, or of strings beside others of which every text is one: what is said of their length or members cannot be held.
absl::Status CheckText(const Json& property, const std::string& pointer) {
  const Json none = Json::array();
  for (const char* keyword : kAlternatives) {
    for (const Json& one : property.value(keyword, none)) {
      if (!one.is_object()) return RefusedBetweenTags(pointer, StrCat("'", keyword, "'"));
      MOED_RETURN_IF_ERROR(CheckText(one, StrCat(pointer, "/", keyword)));
    }
  }
  if (const std::string other = OtherKeyword(property, {"type", "anyOf", "oneOf"}); !other.empty())
    return RefusedBetweenTags(pointer, StrCat("'", other, "'"));
  const Json type = property.value("type", Json());
  const auto is_wider = [](const Json& one) { return one == "string" || one == "null" || one == "boolean" || one == "number"; };
  if (type.is_null() || is_wider(type) || (type.is_array() && std::all_of(type.begin(), type.end(), is_wider)))
    return absl::OkStatus();
  return RefusedBetweenTags(pointer, StrCat("the type ", type.is_array() ? "list" : ShownJson(type), " beside strings"));
}

}  // namespace

absl::Status RefusedBetweenTags(std::string_view place, std::string_view what) {
  return InvalidArgument("at ", place.empty() ? "/" : place, ": ", what,
                         " cannot be held to where a model writes values without quotes, as this one does");
}

Syntax ClosedValue(const TagSyntax& tags, Syntax value) {
  return grammar::InOrder({std::move(value), Literal(tags.lines ? "\n" : ""), grammar::Marker(tags.value_close)});
}

Syntax AnyText(const TagSyntax& tags) {
  std::vector<Syntax> ends = {grammar::InOrder({grammar::Marker(tags.value_close)})};
  for (const std::string& end : ValueEnds(tags)) {
    if (!end.ends_with(tags.value_close)) ends.push_back(grammar::InOrder({grammar::Marker(end), grammar::OneOf({})}));
  }
  return grammar::Free(std::move(ends), false);
}

absl::StatusOr<TaggedText::Value> TaggedText::Of(const Json& schema, const std::string& pointer) {
  const Json& said = references_.Said(schema);
  if (const auto known = known_.find(&said); known != known_.end()) return known->second;
  MOED_ASSIGN_OR_RETURN(Value value, Made(said, pointer));
  return known_.emplace(&said, std::move(value)).first->second;
}

absl::StatusOr<TaggedText::Value> TaggedText::Made(const Json& said, const std::string& pointer) {
  const Value any{AnyText(tags_)};
  if (!said.is_object()) return any;
  if (IsList(said)) {
    MOED_ASSIGN_OR_RETURN(Syntax listed, Listed(said, pointer));
    return Value{ClosedValue(tags_, std::move(listed))};
  }
  if (const Json* lists = Lists(said)) return OfLists(*lists, pointer);
  if (Asserts(said, "format") && said.value("type", Json()) == "string" && OtherKeyword(said, {"type", "format"}).empty() &&
      said["format"].is_string()) {
    const std::string& pattern = *grammar::FormatPattern(said["format"].get_ref<const std::string&>());
    return Value{ClosedValue(tags_, grammar::Regex(pattern))};
  }
  MOED_RETURN_IF_ERROR(CheckText(said, pointer));
  return any;
}

absl::StatusOr<Syntax> TaggedText::Listed(const Json& said, const std::string& pointer) const {
  if (const std::string other = OtherKeyword(said, {"type", "enum", "const"}); !other.empty())
    return RefusedBetweenTags(pointer, StrCat("'", other, "' beside values"));
  const Json values = said.contains("const") ? Json::array({said["const"]}) : said["enum"];
  std::vector<Syntax> parts;
  for (const Json& value : values) {
    if (!value.is_string() || value.get_ref<const std::string&>().find(tags_.value_close) != std::string::npos)
      return RefusedBetweenTags(pointer, "a list of values that has strings and others");
    parts.push_back(Literal(value.get_ref<const std::string&>()));
  }
  return grammar::OneOf(std::move(parts));
}

const Json* TaggedText::Lists(const Json& said) {
  const auto is_one = [&](const Json& schema) {
    const Json& one = references_.Said(schema);
    return IsList(one) || IsNull(one);
  };
  for (const char* keyword : kAlternatives) {
    if (!said.contains(keyword) || !OtherKeyword(said, {keyword}).empty()) continue;
    const Json& all = said[keyword];
    if (all.is_array() && std::all_of(all.begin(), all.end(), is_one)) return &all;
  }
  return nullptr;
}

absl::StatusOr<TaggedText::Value> TaggedText::OfLists(const Json& lists, const std::string& pointer) {
  Value value;
  std::vector<Syntax> texts;
  for (const Json& one : lists) {
    if (IsNull(references_.Said(one))) {
      value.or_null = true;
    } else {
      MOED_ASSIGN_OR_RETURN(Value listed, Of(one, pointer));
      texts.push_back(std::move(listed.text));
    }
  }
  value.text = grammar::OneOf(std::move(texts));
  return value;
}

}  // namespace moed::chat
