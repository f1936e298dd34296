#include "core/grammar/json_schema.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "core/base/check.h"
#include "core/base/json_value.h"
#include "core/base/status.h"
#include "core/base/utf8.h"
#include "core/grammar/json_rules.h"
#include "core/grammar/number_bounds.h"
#include "core/grammar/number_range.h"
#include "core/grammar/regex.h"
#include "core/grammar/schema_text.h"
#include "core/grammar/string_formats.h"

namespace moed::grammar {
namespace {

constexpr Pc kReturn = ProgramBuilder::kReturn;
constexpr int kNoMost = ProgramBuilder::kNoMost;
constexpr int kMostDepth = 64;       // of schemas within each other
constexpr int kMostSchemas = 4096;   // that are compiled
constexpr size_t kMostDistinct = 8;  // values that an array may have once each
constexpr int kMostJoined = 8;       // schemas made of several, within each other: each is a copy
constexpr int64_t kMostCount = ProgramBuilder::kMostInstructions;
constexpr const char* kFormat = "format";
constexpr const char* kPattern = "pattern";

template <class... Parts>
absl::Status At(const std::string& path, const Parts&... parts) {
  return InvalidArgument(Place(path), parts...);
}

struct Property {
  std::string name;
  uint32_t value;  // rule
  bool needed;
};

// Below it references lead to places of another schema.
bool HasInnerId(const Json& schema) {
  return std::any_of(schema.begin(), schema.end(), [](const Json& part) {
    if (!part.is_structured()) return false;
    return (part.is_object() && part.contains("$id") && part["$id"].is_string()) || HasInnerId(part);
  });
}

class Compiler {
 public:
  Compiler(const Json& root, ProgramBuilder& builder, JsonRules& json)
      : root_(root), builder_(builder), json_(json), has_inner_id_(HasInnerId(root)) {}
  absl::StatusOr<Pc> Build(std::string_view pointer, Pc next);

 private:
  // Every schema is a rule.
  absl::StatusOr<uint32_t> Rule(const Json& schema, const std::string& path, int depth);
  // What a schema says beside one of its keywords.
  absl::StatusOr<Json> Beside(const std::string& keyword, const Json& schema, const std::string& path);
  // Null where there is none.
  const Json* Target(const std::string& reference);
  // Of a schema that was made of several.
  absl::StatusOr<uint32_t> JoinedRule(const Json& both, const std::string& path, int depth);
  absl::StatusOr<Pc> Joined(const Json& both, const std::string& path, int depth);
  absl::StatusOr<Pc> Body(const Json& schema, const std::string& path, int depth);
  absl::StatusOr<Pc> Reference(const Json& schema, const std::string& path, int depth);
  absl::StatusOr<Pc> AllOf(const Json& schema, const std::string& path, int depth);
  absl::StatusOr<Pc> AnyOf(const Json& schema, const std::string& keyword, const std::string& path, int depth);
  absl::StatusOr<Pc> Values(const Json& schema, const std::string& path);
  absl::StatusOr<Pc> OfType(const std::string& type, const Json& schema, const std::string& path, int depth);
  absl::StatusOr<Pc> Object(const Json& schema, const std::string& path, int depth);
  absl::StatusOr<Pc> Map(const Json& schema, const Json& others, const std::string& path, int depth);
  absl::StatusOr<Pc> PatternMap(const Json& schema, const Json& others, const std::string& path, int depth);
  Pc Properties(const std::vector<Property>& properties);
  absl::StatusOr<Pc> Array(const Json& schema, const std::string& path, int depth);
  absl::StatusOr<Pc> Distinct(const Json& schema, int least, int most, const std::string& path, int depth);
  absl::StatusOr<Pc> String(const Json& schema, const std::string& path);
  absl::StatusOr<Pc> Format(const Json& format, const std::string& path);
  absl::StatusOr<Pc> Number(bool whole, const Json& schema, const std::string& path);
  absl::StatusOr<int> Count(const Json& schema, const char* keyword, int otherwise, const std::string& path);
  absl::StatusOr<int> Most(const Json& schema, const char* keyword, const std::string& path);

  const Json& root_;
  ProgramBuilder& builder_;
  JsonRules& json_;
  const bool has_inner_id_;
  std::map<std::string, const Json*> targets_;  // by reference
  std::map<const Json*, uint32_t> references_;  // by target, which may be spelt in many ways
  std::map<std::string, uint32_t> formats_;
  JoiningWork work_;
  int schemas_ = 0;
  int joined_ = 0;  // that are being compiled
};

// Whether any keyword but these says something of values.
bool Asserts(const Json& schema, std::initializer_list<std::string_view> but = {}) {
  const auto& items = schema.items();
  return std::any_of(items.begin(), items.end(), [&](const auto& item) {
    return KindOf(item.key(), item.value()) != Keyword::kAnnotation && std::find(but.begin(), but.end(), item.key()) == but.end();
  });
}

absl::StatusOr<std::set<std::string>> Types(const Json& schema, const std::string& path) {
  std::set<std::string> types;
  const Json nullable = schema.contains("nullable") ? schema["nullable"] : Json(false);
  if (!nullable.is_boolean()) return At(path, "'nullable' is ", ShownJson(nullable));
  if (nullable == Json(true) && !schema.contains("type")) return At(path, "'nullable' is supported beside 'type' alone");
  if (nullable == Json(true)) types.insert("null");
  if (!schema.contains("type")) return types;
  const Json one = Json::array({schema["type"]});
  for (const Json& type : schema["type"].is_array() ? schema["type"] : one) {
    if (!type.is_string()) return At(path, "'type' is ", ShownJson(type));
    types.insert(type.get<std::string>());
  }
  return types;
}

absl::StatusOr<std::set<std::string>> Required(const Json& schema, const std::string& path) {
  std::set<std::string> required;
  if (!schema.contains("required")) return required;
  for (const Json& name : schema["required"]) {
    if (!name.is_string()) return At(path, "'required' has ", ShownJson(name));
    required.insert(name.get<std::string>());
  }
  return required;
}

// A number without a fraction, however it is written.
bool IsWhole(const Json& value) {
  return value.is_number_integer() || (value.is_number_float() && std::trunc(value.get<double>()) == value.get<double>());
}

// In characters.
bool IsOfLength(std::string_view utf8, int least, int most) {
  const auto length = static_cast<int64_t>(CountCharacters(utf8));
  return length >= least && (most == kNoMost || length <= most);
}

// What its keywords are about, of which it has one.
std::string AboutType(const Json& schema) {
  const std::string_view type = TypeOfKeywords([&](std::string_view keyword) { return schema.contains(keyword); });
  return std::string(type.empty() ? "number" : type);
}

absl::StatusOr<Pc> Compiler::Build(std::string_view pointer, Pc next) {
  const Json* schema = AtPointer(root_, pointer);
  MOED_CHECK(schema != nullptr);
  MOED_ASSIGN_OR_RETURN(const uint32_t rule, Rule(*schema, std::string(pointer), 0));
  return builder_.Call(rule, next);
}

absl::StatusOr<uint32_t> Compiler::Rule(const Json& schema, const std::string& path, int depth) {
  if (depth > kMostDepth) return At(path, "schemas more than ", kMostDepth, " deep");
  if (++schemas_ > kMostSchemas) return At(path, "more than ", kMostSchemas, " schemas");
  if (builder_.full()) return At(path, "the automaton has more than ", ProgramBuilder::kMostInstructions, " instructions");
  const uint32_t rule = builder_.NewRule();
  MOED_ASSIGN_OR_RETURN(const Pc body, Body(schema, path, depth));
  builder_.SetRule(rule, body);
  return rule;
}

absl::StatusOr<Json> Compiler::Beside(const std::string& keyword, const Json& schema, const std::string& path) {
  Json rest = Json::object();
  for (const auto& [name, value] : schema.items()) {
    if (name == keyword || KindOf(name, value) == Keyword::kAnnotation) continue;
    MOED_RETURN_IF_ERROR(work_.AddCopy(value, path));
    rest[name] = value;
  }
  return rest;
}

const Json* Compiler::Target(const std::string& reference) {
  const auto [found, is_new] = targets_.try_emplace(reference, nullptr);
  if (is_new) found->second = Referred(root_, reference);
  return found->second;
}

absl::StatusOr<uint32_t> Compiler::JoinedRule(const Json& both, const std::string& path, int depth) {
  if (joined_ >= kMostJoined) return At(path, "schemas to be joined more than ", kMostJoined, " deep");
  ++joined_;
  MOED_ASSIGN_OR_RETURN(const uint32_t rule, Rule(both, path, depth + 1));
  --joined_;
  return rule;
}

absl::StatusOr<Pc> Compiler::Joined(const Json& both, const std::string& path, int depth) {
  MOED_ASSIGN_OR_RETURN(const uint32_t rule, JoinedRule(both, path, depth));
  return builder_.Call(rule, kReturn);
}

absl::StatusOr<Pc> Compiler::Body(const Json& schema, const std::string& path, int depth) {
  if (schema.is_boolean()) return schema.get<bool>() ? json_.AnyValue(kReturn) : ProgramBuilder::kDead;
  if (!schema.is_object()) return At(path, "a schema is an object or a boolean, not ", schema.type_name());
  for (const auto& [name, value] : schema.items()) {
    if (KindOf(name, value) == Keyword::kUnknown) return At(path, "the keyword '", name, "' is not supported");
  }
  if (schema.contains("$ref")) return Reference(schema, path, depth);
  if (schema.contains("allOf")) return AllOf(schema, path, depth);
  if (schema.contains("anyOf")) return AnyOf(schema, "anyOf", path, depth);
  if (schema.contains("oneOf")) return AnyOf(schema, "oneOf", path, depth);
  if (schema.contains("const") || schema.contains("enum")) return Values(schema, path);
  if (!Asserts(schema)) return json_.AnyValue(kReturn);
  MOED_ASSIGN_OR_RETURN(std::set<std::string> types, Types(schema, path));
  if (!schema.contains("type")) types = {AboutType(schema)};
  std::vector<Pc> parts;
  for (const std::string& type : types) {
    MOED_ASSIGN_OR_RETURN(const Pc part, OfType(type, schema, path, depth));
    parts.push_back(part);
  }
  return builder_.Either(parts);
}

absl::StatusOr<Pc> Compiler::Reference(const Json& schema, const std::string& path, int depth) {
  if (!schema["$ref"].is_string()) return At(path, "'$ref' is ", ShownJson(schema["$ref"]));
  if (has_inner_id_) return At(path, "'$ref' in a schema that has an '$id' below its top is not supported");
  const auto reference = schema["$ref"].get<std::string>();
  const Json* target = Target(reference);
  if (target == nullptr) return At(path, "'$ref' is ", ShownJson(schema["$ref"]), ", which is nothing in this schema");
  if (Asserts(schema, {"$ref"})) {
    MOED_ASSIGN_OR_RETURN(Json rest, Beside("$ref", schema, path));
    MOED_ASSIGN_OR_RETURN(const Json both, Both(std::move(rest), *target, path, work_));
    return Joined(both, path, depth);
  }
  const auto [found, is_new] = references_.try_emplace(target, 0);
  if (is_new) {
    const uint32_t rule = found->second = builder_.NewRule();
    if (++schemas_ > kMostSchemas || depth > kMostDepth) return At(path, "schemas too many or too deep");
    MOED_ASSIGN_OR_RETURN(const Pc body,
                          Body(*target, reference.substr(std::min(reference.find('#'), reference.size() - 1) + 1), depth + 1));
    builder_.SetRule(rule, body);
  }
  return builder_.Call(references_[target], kReturn);
}

absl::StatusOr<Pc> Compiler::AllOf(const Json& schema, const std::string& path, int depth) {
  const Json& all = schema["allOf"];
  if (!all.is_array() || all.empty()) return At(path, "'allOf' is no list of schemas");
  MOED_ASSIGN_OR_RETURN(Json both, Beside("allOf", schema, path));
  for (const Json& one : all) {
    const Json* part = &one;
    if (one.is_object() && one.contains("$ref") && one["$ref"].is_string() && !Asserts(one, {"$ref"})) {
      part = Target(one["$ref"].get<std::string>());
    }
    if (part == nullptr) return At(path, "'$ref' is ", ShownJson(one["$ref"]), ", which is nothing in this schema");
    MOED_ASSIGN_OR_RETURN(both, Both(std::move(both), *part, path, work_));
  }
  return Joined(both, path, depth);
}

// oneOf too: what several of its schemas accept is not told from what one does.
absl::StatusOr<Pc> Compiler::AnyOf(const Json& schema, const std::string& keyword, const std::string& path, int depth) {
  const Json& all = schema[keyword];
  if (!all.is_array() || all.empty()) return At(path, "'", keyword, "' is no list of schemas");
  MOED_ASSIGN_OR_RETURN(const Json rest, Beside(keyword, schema, path));
  std::vector<Pc> parts;
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string here = StrCat(path, "/", keyword, "/", i);
    if (!rest.empty()) {
      MOED_RETURN_IF_ERROR(work_.AddCopy(rest, here));
      MOED_ASSIGN_OR_RETURN(const Json both, Both(rest, all[i], here, work_));
      MOED_ASSIGN_OR_RETURN(const Pc part, Joined(both, here, depth));
      parts.push_back(part);
    } else {
      MOED_ASSIGN_OR_RETURN(const uint32_t rule, Rule(all[i], here, depth + 1));
      parts.push_back(builder_.Call(rule, kReturn));
    }
  }
  return builder_.Either(parts);
}

absl::StatusOr<Pc> Compiler::Values(const Json& schema, const std::string& path) {
  if (Asserts(schema, {"const", "enum", "type", "nullable", "minLength", "maxLength"}))
    return At(path, "'const' and 'enum' are supported beside 'type', 'minLength' and 'maxLength' alone");
  if (schema.contains("const") && schema.contains("enum")) return At(path, "'const' beside 'enum' is not supported");
  const Json values = schema.contains("const") ? Json::array({schema["const"]}) : schema["enum"];
  if (!values.is_array()) return At(path, "'enum' is no list");
  MOED_RETURN_IF_ERROR(work_.AddCopy(values, path));
  MOED_ASSIGN_OR_RETURN(const std::set<std::string> types, Types(schema, path));
  MOED_ASSIGN_OR_RETURN(const int least, Count(schema, "minLength", 0, path));
  MOED_ASSIGN_OR_RETURN(const int most, Most(schema, "maxLength", path));
  std::vector<std::string> texts;
  for (const Json& value : values) {
    const std::string type = IsWhole(value) ? "integer" : value.type_name();
    const bool allowed = !schema.contains("type") || types.count(type) > 0 || (value.is_number() && types.count("number") > 0);
    if (!allowed || (value.is_string() && !IsOfLength(value.get_ref<const std::string&>(), least, most))) continue;
    texts.push_back(value.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return builder_.OneOf(std::move(texts), kReturn);
}

absl::StatusOr<Pc> Compiler::OfType(const std::string& type, const Json& schema, const std::string& path, int depth) {
  if (type == "object") return Object(schema, path, depth);
  if (type == "array") return Array(schema, path, depth);
  if (type == "string") return String(schema, path);
  if (type == "number" || type == "integer") return Number(type == "integer", schema, path);
  if (type == "null") return builder_.Literal("null", kReturn);
  if (type == "boolean") return builder_.Either(builder_.Literal("true", kReturn), builder_.Literal("false", kReturn));
  return At(path, "no type '", type, "'; types: object, array, string, number, integer, boolean, null");
}

absl::StatusOr<Pc> Compiler::Object(const Json& schema, const std::string& path, int depth) {
  static const auto& kNone = *new Json(Json::object());
  static const auto& kAny = *new Json(true);
  MOED_ASSIGN_OR_RETURN(const std::set<std::string> required, Required(schema, path));
  const Json& named = schema.contains("properties") ? schema["properties"] : kNone;
  if (!named.is_object()) return At(path, "'properties' is no object");
  const Json& others = schema.contains("additionalProperties") ? schema["additionalProperties"] : kAny;
  if (named.empty() && required.empty()) return Map(schema, others, path, depth);
  for (const char* keyword : {"propertyNames", "patternProperties"}) {
    if (schema.contains(keyword)) return At(path, "'", keyword, "' beside 'properties' or 'required' is not supported");
  }
  std::vector<Property> properties;
  std::set<std::string> unnamed = required;
  for (const auto& [name, property] : named.items()) {
    MOED_ASSIGN_OR_RETURN(const uint32_t value, Rule(property, StrCat(path, "/properties/", name), depth + 1));
    properties.push_back({name, value, required.count(name) > 0});
    unnamed.erase(name);
  }
  if (unnamed.empty()) return Properties(properties);
  MOED_ASSIGN_OR_RETURN(const uint32_t other, Rule(others, path + "/additionalProperties", depth + 1));
  for (const std::string& name : unnamed) properties.push_back({name, other, true});
  return Properties(properties);
}

absl::StatusOr<Pc> Compiler::Map(const Json& schema, const Json& others, const std::string& path, int depth) {
  if (schema.contains("patternProperties")) return PatternMap(schema, others, path, depth);
  if (others == Json(false)) return builder_.Literal("{", json_.Space(builder_.Literal("}", kReturn)));
  MOED_ASSIGN_OR_RETURN(const uint32_t value, Rule(others, path + "/additionalProperties", depth + 1));
  if (!schema.contains("propertyNames")) return json_.Map(value, kReturn);
  const std::string here = path + "/propertyNames";
  MOED_ASSIGN_OR_RETURN(const Json names, Both(Json::object({{"type", "string"}}), schema["propertyNames"], here, work_));
  MOED_ASSIGN_OR_RETURN(const uint32_t name, JoinedRule(names, here, depth));
  const JsonRules::Entry entry{name, value};
  return json_.Map({&entry, 1}, kReturn);
}

// Names that no pattern matches do not come. One that several match would have to be what all of these say.
absl::StatusOr<Pc> Compiler::PatternMap(const Json& schema, const Json& others, const std::string& path, int depth) {
  const Json& patterns = schema["patternProperties"];
  if (!patterns.is_object() || patterns.empty()) return At(path, "'patternProperties' is no object that says something");
  if (schema.contains("propertyNames") || !others.is_boolean()) {
    return At(path, "'patternProperties' is supported beside an 'additionalProperties' of true or false alone");
  }
  const std::string below = path + "/patternProperties/";
  const auto first = patterns.begin();
  MOED_ASSIGN_OR_RETURN(const uint32_t value, Rule(*first, below + first.key(), depth + 1));
  std::vector<JsonRules::Entry> entries;
  for (const auto& [pattern, of_value] : patterns.items()) {
    if (of_value != *first) return At(below + pattern, "several patterns are supported where all say the same of values");
    const Json names = Json::object({{"type", "string"}, {"pattern", pattern}});
    MOED_ASSIGN_OR_RETURN(const uint32_t name, Rule(names, below + pattern, depth + 1));
    entries.push_back({name, value});
  }
  return json_.Map(entries, kReturn);
}

// Backwards: `names` begins with the name of a property that is still to come, `further` with what may follow a value. One space
// goes before all names, so that a text has few ways to go on.
Pc Compiler::Properties(const std::vector<Property>& properties) {
  const Pc close = json_.Space(builder_.Bytes('}', '}', kReturn));
  Pc further = close, names = ProgramBuilder::kDead;
  bool needed = false;
  for (size_t i = properties.size(); i-- > 0;) {
    const std::string key = Json(properties[i].name).dump(-1, ' ', false, Json::error_handler_t::replace);
    const Pc written = builder_.Literal(key + ":", json_.Space(builder_.Call(properties[i].value, further)));
    names = properties[i].needed ? written : builder_.Either(written, names);
    needed |= properties[i].needed;
    const Pc more = builder_.Bytes(',', ',', json_.Space(names));
    further = needed ? more : builder_.Either(more, close);
  }
  const Pc first = json_.Space(names);
  return builder_.Bytes('{', '{', needed ? first : builder_.Either(first, close));
}

absl::StatusOr<int> Compiler::Count(const Json& schema, const char* keyword, int otherwise, const std::string& path) {
  if (!schema.contains(keyword)) return otherwise;
  Json value = schema[keyword];
  if (value.is_number_float() && IsWhole(value) && std::abs(value.get<double>()) <= kMostCount) value = value.get<int>();  // 2.0
  const auto count = WholeNumber(StrCat(Place(path), "'", keyword, "'"), value, 0, kMostCount);
  if (!count.ok()) return count.status();
  return static_cast<int>(*count);
}

// Characters and items have a byte each at least.
absl::StatusOr<int> Compiler::Most(const Json& schema, const char* keyword, const std::string& path) {
  if (schema.contains(keyword) && IsWhole(schema[keyword]) &&
      schema[keyword].get<double>() >= static_cast<double>(builder_.most_text_bytes())) {
    return kNoMost;
  }
  return Count(schema, keyword, kNoMost, path);
}

absl::StatusOr<Pc> Compiler::Array(const Json& schema, const std::string& path, int depth) {
  MOED_ASSIGN_OR_RETURN(const int least, Count(schema, "minItems", 0, path));
  MOED_ASSIGN_OR_RETURN(const int most, Most(schema, "maxItems", path));
  if (most != kNoMost && most < least) return ProgramBuilder::kDead;
  const bool distinct = schema.contains("uniqueItems") && KindOf("uniqueItems", schema["uniqueItems"]) != Keyword::kAnnotation;
  if (distinct && (most == kNoMost || most > 1)) return Distinct(schema, least, most, path, depth);
  uint32_t item = json_.value_rule();
  const bool is_old = schema.contains("items") && schema["items"].is_array();  // draft 7's form of 'prefixItems'
  if (is_old && schema.contains("prefixItems")) return At(path, "'items' beside 'prefixItems' are a list");
  if (schema.contains("items") && !is_old) {
    MOED_ASSIGN_OR_RETURN(item, Rule(schema["items"], path + "/items", depth + 1));
  }
  const std::string keyword = is_old ? "items" : "prefixItems";
  if (!schema.contains(keyword)) return json_.Array(item, least, most, kReturn);
  const Json& prefix = schema[keyword];
  if (!prefix.is_array() || prefix.empty()) return At(path, "'", keyword, "' is no list of schemas");
  std::vector<uint32_t> first;
  for (const Json& one : prefix) {
    MOED_ASSIGN_OR_RETURN(const uint32_t rule, Rule(one, StrCat(path, "/", keyword, "/", first.size()), depth + 1));
    first.push_back(rule);
  }
  return json_.Tuple(first, item, least, most, kReturn);
}

// In any order: what has come so far says what may still come.
absl::StatusOr<Pc> Compiler::Distinct(const Json& schema, int least, int most, const std::string& path, int depth) {
  const Json* items = schema.contains("items") && !schema.contains("prefixItems") ? &schema["items"] : nullptr;
  for (int i = 0; i < kMostDepth && items != nullptr && items->is_object() && items->contains("$ref"); ++i) {
    const Json& reference = (*items)["$ref"];
    items = reference.is_string() && !Asserts(*items, {"$ref"}) ? Target(reference.get<std::string>()) : nullptr;
  }
  const Json* const values = items != nullptr && items->is_object() && items->contains("enum") ? &(*items)["enum"] : nullptr;
  if (values == nullptr || !values->is_array() || values->size() > kMostDistinct) {
    return At(path, "'uniqueItems' is supported beside a 'maxItems' of 0 or 1, and where 'items' have an 'enum' of at most ",
              kMostDistinct, " values; leave it out and drop what is there twice");
  }
  std::vector<uint32_t> rules;
  for (auto value = values->begin(); value != values->end(); ++value) {
    if (std::find(values->begin(), value, *value) != value) continue;
    MOED_ASSIGN_OR_RETURN(Json one, Beside("enum", *items, path));
    one["enum"] = Json::array({*value});
    MOED_ASSIGN_OR_RETURN(const uint32_t rule, Rule(one, path + "/items", depth + 1));
    rules.push_back(rule);
  }
  return json_.Distinct(rules, least, most, kReturn);
}

// Compiled once, for some are large.
absl::StatusOr<Pc> Compiler::Format(const Json& format, const std::string& path) {
  if (!format.is_string()) return At(path, "'format' is ", ShownJson(format));
  const auto& name = format.get_ref<const std::string&>();
  const auto [found, is_new] = formats_.try_emplace(name, 0);
  if (is_new) {
    found->second = builder_.NewRule();
    const Pc close = builder_.Bytes('"', '"', kReturn);
    const auto body = BuildRegex(*FormatPattern(name), true, Encoding::kJsonString, builder_, close);
    MOED_CHECK(body.ok());
    builder_.SetRule(found->second, builder_.Bytes('"', '"', *body));
  }
  return builder_.Call(found->second, kReturn);
}

absl::StatusOr<Pc> Compiler::String(const Json& schema, const std::string& path) {
  MOED_ASSIGN_OR_RETURN(const int least, Count(schema, "minLength", 0, path));
  MOED_ASSIGN_OR_RETURN(const int most, Most(schema, "maxLength", path));
  const bool has_format = schema.contains("format") && KindOf("format", schema["format"]) != Keyword::kAnnotation;
  const bool has_pattern = schema.contains("pattern");
  if (!has_format && !has_pattern)
    return most != kNoMost && most < least ? ProgramBuilder::kDead : json_.String(least, most, kReturn);
  const auto held = [&](const char* keyword) -> absl::StatusOr<Pc> {
    if (!schema[keyword].is_string()) return At(path, "'", keyword, "' is ", ShownJson(schema[keyword]));
    const auto& given = schema[keyword].get_ref<const std::string&>();
    const std::string& pattern = keyword == kFormat ? *FormatPattern(given) : given;
    MOED_RETURN_IF_ERROR(work_.Add(pattern.size(), path));
    const Pc close = builder_.Bytes('"', '"', kReturn);
    const auto body = BuildRegex(pattern, true, Encoding::kJsonString, builder_, close, {least, most});
    if (!body.ok()) return At(path, "'", keyword, "': ", body.status().message());
    return builder_.Bytes('"', '"', *body);
  };
  // Generators of schemas write a format's pattern beside it: one of the two is enough.
  auto by_pattern = has_pattern ? held(kPattern) : absl::StatusOr<Pc>(ProgramBuilder::kDead);
  if (!has_format || (has_pattern && by_pattern.ok())) return by_pattern;
  const bool has_length = least > 0 || most != kNoMost;
  const auto by_format = has_length ? held(kFormat) : Format(schema[kFormat], path);
  return by_format.ok() || !has_pattern ? by_format : by_pattern;
}

absl::StatusOr<Pc> Compiler::Number(bool whole, const Json& schema, const std::string& path) {
  MOED_ASSIGN_OR_RETURN(const std::optional<NumberBounds> bounds, ReadNumberBounds(schema, whole, path));
  return bounds ? Numbers(*bounds, builder_, kReturn) : json_.Number(whole, kReturn);
}

}  // namespace

class SchemaCompiler::Impl : public Compiler {
 public:
  using Compiler::Compiler;
};

SchemaCompiler::SchemaCompiler(const Json& root, ProgramBuilder& builder, JsonRules& rules)
    : impl_(std::make_unique<Impl>(root, builder, rules)) {}
SchemaCompiler::~SchemaCompiler() = default;

absl::StatusOr<Pc> SchemaCompiler::Build(std::string_view pointer, Pc next) { return impl_->Build(pointer, next); }

}  // namespace moed::grammar
