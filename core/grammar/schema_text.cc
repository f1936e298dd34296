#include "core/grammar/schema_text.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "core/base/status.h"
#include "core/grammar/string_formats.h"

namespace moed::grammar {
namespace {

constexpr int kMostDepth = 64;

constexpr std::string_view kAnnotations[] = {
    "title",       "description",   "default",          "examples",        "example",          "$schema",
    "$id",         "$comment",      "deprecated",       "readOnly",        "writeOnly",        "$defs",
    "definitions", "discriminator", "propertyOrdering", "contentEncoding", "contentMediaType", "contentSchema"};
constexpr std::string_view kAssertions[] = {"type",
                                            "enum",
                                            "const",
                                            "properties",
                                            "required",
                                            "additionalProperties",
                                            "propertyNames",
                                            "patternProperties",
                                            "items",
                                            "prefixItems",
                                            "uniqueItems",
                                            "minItems",
                                            "maxItems",
                                            "minLength",
                                            "pattern",
                                            "maxLength",
                                            "format",
                                            "nullable",
                                            "minimum",
                                            "maximum",
                                            "exclusiveMinimum",
                                            "exclusiveMaximum",
                                            "multipleOf",
                                            "anyOf",
                                            "oneOf",
                                            "allOf",
                                            "$ref"};

// What both of two types allow; "number" holds "integer".
Json BothTypes(const Json& one, const Json& other) {
  const Json ones = one.is_array() ? one : Json::array({one});
  const Json others = other.is_array() ? other : Json::array({other});
  const auto has = [](const Json& types, const Json& type) { return std::find(types.begin(), types.end(), type) != types.end(); };
  Json both = Json::array();
  for (const Json& type : ones) {
    if (has(others, type) || (type == "integer" && has(others, "number"))) both.push_back(type);
  }
  if (has(others, "integer") && has(ones, "number") && !has(ones, "integer")) both.push_back("integer");
  return both;
}

// Values, and every so many bytes of texts.
size_t Size(const Json& value) {
  constexpr size_t kBytes = 8;
  size_t size = 1;
  if (value.is_string()) return size + value.get_ref<const std::string&>().size() / kBytes;
  if (!value.is_structured()) return size;
  for (const auto& [name, part] : value.items()) size += Size(part) + (value.is_object() ? name.size() / kBytes : 0);
  return size;
}

bool IsNullable(const Json& schema) {
  return schema.contains("nullable") && KindOf("nullable", schema["nullable"]) != Keyword::kAnnotation;
}

// What `schema` says of properties that it does not name.
Json OtherProperties(const Json& schema) {
  return schema.contains("additionalProperties") ? schema["additionalProperties"] : Json(true);
}

// The properties of either; of what only one names, the other's 'additionalProperties' says something too.
absl::Status JoinProperties(Json& one, const Json& other, const std::string& path, JoiningWork& work) {
  Json both = one.value("properties", Json::object());
  const Json named = other.value("properties", Json::object());
  if (!both.is_object() || !named.is_object()) return InvalidArgument(Place(path), "'properties' is no object");
  MOED_RETURN_IF_ERROR(work.Add(Size(both) + Size(named), path));
  MOED_RETURN_IF_ERROR(work.AddComparisons((both.size() + named.size()) * (named.size() + path.size() / 16), path));
  const Json others[] = {OtherProperties(one), OtherProperties(other)};
  MOED_RETURN_IF_ERROR(work.Add(named.size() * Size(others[0]), path));
  for (auto& property : both.items()) {
    if (others[1] == Json(true) || named.contains(property.key())) continue;
    MOED_ASSIGN_OR_RETURN(property.value(), Both(std::move(property.value()), others[1], path + "/" + property.key(), work));
  }
  for (const auto& [name, schema] : named.items()) {
    Json here = both.contains(name) ? both[name] : others[0];
    MOED_ASSIGN_OR_RETURN(both[name], Both(std::move(here), schema, path + "/" + name, work));
  }
  if (!both.empty()) one["properties"] = std::move(both);
  return absl::OkStatus();
}

Json BothRequired(Json both, const Json& other) {
  for (const Json& property : other) {
    if (std::find(both.begin(), both.end(), property) == both.end()) both.push_back(property);
  }
  return both;
}

// Of a keyword.
absl::StatusOr<Json> BothValues(const std::string& name, Json one, const Json& other, const std::string& path,
                                JoiningWork& work) {
  MOED_RETURN_IF_ERROR(work.AddComparisons((one.size() + other.size()) * other.size(), path));
  if (one == other) return one;
  if (name == "type") return BothTypes(one, other);
  if (name == "additionalProperties" || name == "propertyNames") return Both(std::move(one), other, path + "/" + name, work);
  if (name == "required" && one.is_array() && other.is_array()) return BothRequired(std::move(one), other);
  const bool numbers = one.is_number() && other.is_number();
  const bool is_least = name.compare(0, 3, "min") == 0 || name == "exclusiveMinimum";
  const bool is_most = name.compare(0, 3, "max") == 0 || name == "exclusiveMaximum";
  if (numbers && is_least) return std::max(one, other);
  if (numbers && is_most) return std::min(one, other);
  return InvalidArgument(Place(path), "two different '", name, "' cannot be joined");
}

// Of an object by its name, of an array by its index. Null where there is none.
const Json* Member(const Json& value, const std::string& name) {
  if (value.is_object()) return value.contains(name) ? &value[name] : nullptr;
  const auto index = IndexOf(name, value.is_array() ? value.size() : 0);
  return index ? &value[*index] : nullptr;
}

// The steps of "/$defs/x". Nullopt where it is no pointer.
std::optional<std::vector<std::string>> StepsOfPointer(std::string_view pointer) {
  std::vector<std::string> steps;
  while (!pointer.empty()) {
    if (pointer.front() != '/') return std::nullopt;
    const size_t end = std::min(pointer.find('/', 1), pointer.size());
    std::string& name = steps.emplace_back();
    for (size_t i = 1; i < end; ++i) {
      const bool escaped = pointer[i] == '~' && i + 1 < end && (pointer[i + 1] == '0' || pointer[i + 1] == '1');
      name += escaped ? (pointer[++i] == '0' ? '~' : '/') : pointer[i];
    }
    pointer.remove_prefix(end);
  }
  return steps;
}

const Json* AtSteps(const Json& root, const std::optional<std::vector<std::string>>& steps) {
  if (!steps) return nullptr;
  const Json* at = &root;
  for (const std::string& step : *steps) {
    if (at != nullptr) at = Member(*at, step);
  }
  return at;
}

// Nullopt where a "%" begins no byte.
std::optional<std::string> PercentDecoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned byte = static_cast<unsigned char>(text[i]);
    if (text[i] == '%') {
      const std::string_view digits = text.substr(i + 1, 2);
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
      if (digits.size() != 2 || error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
      i += 2;
    }
    decoded += static_cast<char>(byte);
  }
  return decoded;
}

}  // namespace

absl::StatusOr<Json> ReadSchema(std::string_view text) {
  bool deep = false;
  const auto watch = [&deep](int depth, Json::parse_event_t, Json&) {
    deep = deep || depth > kMostDepth;
    return !deep;
  };
  Json schema = Json::parse(text, watch, false);
  if (deep) return InvalidArgument("nested more than ", kMostDepth, " deep");
  if (schema.is_discarded()) return InvalidArgument("no JSON");
  return schema;
}

std::string Place(const std::string& path) { return StrCat("at ", path.empty() ? std::string("/") : path, ": "); }

Keyword KindOf(std::string_view name, const Json& value) {
  if (name == "format" && value.is_string() && FormatPattern(value.get_ref<const std::string&>()) == nullptr)
    return Keyword::kAnnotation;
  if (name.substr(0, 2) == "x-" || ((name == "nullable" || name == "uniqueItems") && value == Json(false)))
    return Keyword::kAnnotation;
  if (std::find(std::begin(kAnnotations), std::end(kAnnotations), name) != std::end(kAnnotations)) return Keyword::kAnnotation;
  if (std::find(std::begin(kAssertions), std::end(kAssertions), name) != std::end(kAssertions)) return Keyword::kAssertion;
  return Keyword::kUnknown;
}

absl::Status JoiningWork::Add(size_t work, const std::string& path) {
  done_ += std::min(work, kMost + 1);
  return done_ > kMost ? InvalidArgument(Place(path), "to read and join the schemas takes more than ", kMost, " steps")
                       : absl::OkStatus();
}

absl::Status JoiningWork::AddCopy(const Json& value, const std::string& path) { return Add(Size(value), path); }

absl::Status JoiningWork::AddComparisons(size_t names, const std::string& path) {
  constexpr size_t kNames = 16;  // are compared while a value is copied
  return Add(names / kNames, path);
}

absl::StatusOr<Json> Both(Json one, const Json& other, const std::string& path, JoiningWork& work) {
  if (one == Json(false) || other == Json(true)) return one;
  if (one == Json(true) || other == Json(false)) {
    MOED_RETURN_IF_ERROR(work.AddCopy(other, path));
    return other;
  }
  if (!one.is_object() || !other.is_object()) return InvalidArgument(Place(path), "two schemas that cannot be joined");
  // It is about the type beside it, and not about what the other schema says.
  if (IsNullable(one) || IsNullable(other))
    return InvalidArgument(Place(path), "'nullable' in schemas to be joined is not supported");
  // One's 'items' are about what the other's 'prefixItems' name, too.
  const auto is_wider = [](const Json& all, const Json& rest) {
    return all.contains("items") && !all.contains("prefixItems") && rest.contains("prefixItems");
  };
  if (is_wider(one, other) || is_wider(other, one))
    return InvalidArgument(Place(path), "'items' and 'prefixItems' of two schemas cannot be joined");
  // Likewise: what one says of other properties is about names that the other's patterns match.
  const auto leaves_out = [](const Json& all, const Json& rest) {
    return OtherProperties(all) != Json(true) && rest.contains("patternProperties") &&
           (!all.contains("patternProperties") || all["patternProperties"] != rest["patternProperties"]);
  };
  if (leaves_out(one, other) || leaves_out(other, one))
    return InvalidArgument(Place(path), "'additionalProperties' and 'patternProperties' of two schemas cannot be joined");
  MOED_RETURN_IF_ERROR(JoinProperties(one, other, path, work));
  for (const auto& [name, value] : other.items()) {
    if (KindOf(name, value) == Keyword::kAnnotation || name == "properties") continue;
    MOED_RETURN_IF_ERROR(work.AddCopy(value, path));
    if (!one.contains(name)) {
      one[name] = value;
    } else {
      MOED_ASSIGN_OR_RETURN(one[name], BothValues(name, std::move(one[name]), value, path, work));
    }
  }
  return one;
}

std::string_view TypeOfKeywords(absl::FunctionRef<bool(std::string_view keyword)> has) {
  const auto any = [&](std::initializer_list<std::string_view> names) { return std::ranges::any_of(names, has); };
  if (any({"properties", "required", "additionalProperties", "propertyNames", "patternProperties"})) return "object";
  if (any({"items", "prefixItems", "minItems", "maxItems", "uniqueItems"})) return "array";
  if (any({"pattern", "minLength", "maxLength", "format"})) return "string";
  return any({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}) ? "number" : "";
}

std::optional<size_t> IndexOf(std::string_view step, size_t count) {
  size_t index = 0;
  const auto [end, error] = std::from_chars(step.data(), step.data() + step.size(), index);
  const bool is_index = error == std::errc() && end == step.data() + step.size() && (step == "0" || step[0] != '0');
  return is_index && index < count ? std::optional(index) : std::nullopt;
}

std::optional<std::vector<std::string>> StepsOf(std::string_view id, std::string_view reference) {
  const std::string_view base = id.substr(0, id.find('#'));
  if (!id.empty() && reference.starts_with(base)) {
    if (reference.size() == base.size()) return std::vector<std::string>();
    if (reference[base.size()] == '#') reference.remove_prefix(base.size());
  }
  if (!reference.starts_with('#')) return std::nullopt;
  const auto pointer = PercentDecoded(reference.substr(1));
  return pointer ? StepsOfPointer(*pointer) : std::nullopt;
}

const Json* AtPointer(const Json& root, std::string_view pointer) { return AtSteps(root, StepsOfPointer(pointer)); }

const Json* Referred(const Json& root, std::string_view reference) {
  const bool has_id = root.is_object() && root.contains("$id") && root["$id"].is_string();
  return AtSteps(root, StepsOf(has_id ? std::string_view(root["$id"].get_ref<const std::string&>()) : "", reference));
}

}  // namespace moed::grammar
