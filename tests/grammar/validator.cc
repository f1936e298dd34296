#include "tests/grammar/validator.h"

#include <algorithm>
#include <cmath>
#include <regex>
#include <string>

#include "tests/grammar/format_validator.h"

namespace moed::grammar {
namespace {

using Json = nlohmann::ordered_json;

size_t Characters(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

bool IsOfType(const Json& value, const std::string& type) {
  if (type == "number") return value.is_number();
  if (type == "integer" && value.is_number_float()) return std::trunc(value.get<double>()) == value.get<double>();
  if (type == "integer") return value.is_number_integer();
  return value.type_name() == type;
}

// Of a fraction, near enough: neither can be a double.
bool IsMultiple(const Json& value, double multiple) {
  if (value.is_number_integer() && multiple == std::trunc(multiple)) return value.get<int64_t>() % std::llround(multiple) == 0;
  const double times = value.get<double>() / multiple;
  return std::abs(times - std::round(times)) < 0.3;
}

class Validator {
 public:
  explicit Validator(const Json& root) : root_(root) {}

  bool Holds(const Json& schema, const Json& value) const {
    if (schema.is_boolean()) return schema.get<bool>();
    if (schema.contains("$ref")) {
      const auto pointer = schema["$ref"].get<std::string>().substr(1);
      if (!Holds(root_[Json::json_pointer(pointer)], value)) return false;
    }
    return Combined(schema, value) && Typed(schema, value) && Numbers(schema, value) && Strings(schema, value) &&
           Arrays(schema, value) && Objects(schema, value);
  }

 private:
  bool Combined(const Json& schema, const Json& value) const {
    const auto holds = [&](const Json& one) { return Holds(one, value); };
    const auto of = [&](const char* name) { return schema.value(name, Json::array()); };
    for (const char* name : {"anyOf", "oneOf"}) {
      const Json all = of(name);
      if (!all.empty() && std::none_of(all.begin(), all.end(), holds)) return false;
    }
    const Json all = of("allOf");
    if (!std::all_of(all.begin(), all.end(), holds)) return false;
    const Json values = of("enum");
    if (!values.empty() && std::find(values.begin(), values.end(), value) == values.end()) return false;
    return !schema.contains("const") || schema["const"] == value;
  }
  bool Typed(const Json& schema, const Json& value) const {
    if (!schema.contains("type") || (value.is_null() && schema.value("nullable", false))) return true;
    const Json types = schema["type"].is_array() ? schema["type"] : Json::array({schema["type"]});
    return std::any_of(types.begin(), types.end(), [&](const Json& type) { return IsOfType(value, type.get<std::string>()); });
  }
  bool Numbers(const Json& schema, const Json& value) const {
    if (!value.is_number()) return true;
    const double number = value.get<double>();
    if (schema.contains("multipleOf") && !IsMultiple(value, schema["multipleOf"].get<double>())) return false;
    return number >= schema.value("minimum", -1e300) && number <= schema.value("maximum", 1e300) &&
           number > schema.value("exclusiveMinimum", -1e300) && number < schema.value("exclusiveMaximum", 1e300);
  }
  bool Strings(const Json& schema, const Json& value) const {
    if (!value.is_string()) return true;
    const auto& text = value.get_ref<const std::string&>();
    if (Characters(text) < schema.value("minLength", size_t{0}) || Characters(text) > schema.value("maxLength", SIZE_MAX))
      return false;
    if (!IsOfFormat(text, schema.value("format", ""))) return false;
    return !schema.contains("pattern") || std::regex_search(text, std::regex(schema["pattern"].get<std::string>()));
  }
  bool Arrays(const Json& schema, const Json& value) const {
    if (!value.is_array()) return true;
    if (value.size() < schema.value("minItems", size_t{0}) || value.size() > schema.value("maxItems", SIZE_MAX)) return false;
    const bool old = schema.contains("items") && schema["items"].is_array();
    const Json first = old ? schema["items"] : schema.value("prefixItems", Json::array());
    const Json others = schema.contains("items") && !old ? schema["items"] : Json(true);
    for (size_t i = 0; i < value.size(); ++i) {
      if (!Holds(i < first.size() ? first[i] : others, value[i])) return false;
      if (schema.value("uniqueItems", false) && std::find(value.begin(), value.begin() + i, value[i]) != value.begin() + i)
        return false;
    }
    return true;
  }
  bool Objects(const Json& schema, const Json& value) const {
    if (!value.is_object()) return true;
    for (const Json& name : schema.value("required", Json::array())) {
      if (!value.contains(name.get<std::string>())) return false;
    }
    const Json properties = schema.value("properties", Json::object());
    const Json patterns = schema.value("patternProperties", Json::object());
    const Json others = schema.contains("additionalProperties") ? schema["additionalProperties"] : Json(true);
    const Json names = schema.contains("propertyNames") ? schema["propertyNames"] : Json(true);
    for (const auto& [name, one] : value.items()) {
      if (!Holds(names, Json(name))) return false;
      bool known = properties.contains(name);
      if (known && !Holds(properties[name], one)) return false;
      for (const auto& [pattern, says] : patterns.items()) {
        if (!std::regex_search(name, std::regex(pattern))) continue;
        known = true;
        if (!Holds(says, one)) return false;
      }
      if (!known && !Holds(others, one)) return false;
    }
    return true;
  }

  const Json& root_;
};

}  // namespace

bool IsValid(const Json& schema, std::string_view text) {
  const Json value = Json::parse(text, nullptr, false);
  return !value.is_discarded() && Validator(schema).Holds(schema, value);
}

}  // namespace moed::grammar
