#include "core/chat/answer/tool_schemas.h"

#include <optional>
#include <string>

#include "core/base/status.h"
#include "core/chat/json.h"
#include "core/chat/python_text.h"
#include "core/grammar/schema_text.h"

namespace moed::chat {
namespace {

using namespace std::literals;  // NOLINT

constexpr int kMostDepth = 16;

const Value* Field(const Value& value, std::string_view name) {
  return value.is(Kind::kDict) ? value.dict().Find(name) : nullptr;
}

// What a reference leads to, as masks have it. Null where nothing is.
const Value* Referred(const Value& root, std::string_view reference) {
  const Value* id = Field(root, "$id");
  const auto steps = grammar::StepsOf(id != nullptr && id->is(Kind::kText) ? std::string_view(id->text()) : "", reference);
  if (!steps) return nullptr;
  const Value* at = &root;
  for (const std::string& step : *steps) {
    if (at == nullptr) break;
    const auto index = at->is(Kind::kSequence) ? grammar::IndexOf(step, at->items().size()) : std::nullopt;
    at = index ? &at->items()[*index] : Field(*at, step);
  }
  return at;
}

JsonTypes TypeOfName(std::string_view name) {
  constexpr std::pair<std::string_view, JsonTypes> kNames[] = {
      {"string", kJsonString}, {"number", kJsonNumber}, {"integer", kJsonNumber}, {"boolean", kJsonBool},
      {"null", kJsonNull},     {"object", kJsonObject}, {"array", kJsonArray}};
  for (const auto& [known, type] : kNames) {
    if (name == known) return type;
  }
  return 0;
}

JsonTypes TypeOfValue(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
      return kJsonNull;
    case Kind::kBool:
      return kJsonBool;
    case Kind::kInteger:
    case Kind::kFloat:
      return kJsonNumber;
    case Kind::kSequence:
      return kJsonArray;
    case Kind::kDict:
      return kJsonObject;
    default:
      return kJsonString;
  }
}

// What the schemas of one tool say. However many refer to a place, what is there is looked at once.
class SchemaTypes {
 public:
  explicit SchemaTypes(const Value& root) : root_(root) {}
  // 0 where the schema says nothing.
  JsonTypes Of(const Value& schema, int depth = 0);

 private:
  JsonTypes OfReferred(const std::string& reference, int depth);

  const Value& root_;
  absl::flat_hash_map<std::string_view, JsonTypes> referred_;  // any while it is found out
};

JsonTypes SchemaTypes::Of(const Value& schema, int depth) {
  if (depth > kMostDepth) return 0;
  if (const Value* type = Field(schema, "type")) {
    const Value* nullable = Field(schema, "nullable");
    JsonTypes types = nullable != nullptr && nullable->is(Kind::kBool) && nullable->as_bool() ? kJsonNull : 0;
    if (type->is(Kind::kText)) return types | TypeOfName(type->text());
    if (type->is(Kind::kSequence)) {
      for (const Value& one : type->items()) types |= one.is(Kind::kText) ? TypeOfName(one.text()) : 0;
    }
    return types;
  }
  if (const Value* constant = Field(schema, "const")) return TypeOfValue(*constant);
  JsonTypes types = 0;
  if (const Value* reference = Field(schema, "$ref"))
    types |= reference->is(Kind::kText) ? OfReferred(reference->text(), depth) : kJsonAny;
  if (const Value* values = Field(schema, "enum"); values != nullptr && values->is(Kind::kSequence)) {
    for (const Value& value : values->items()) types |= TypeOfValue(value);
  }
  for (const std::string_view name : {"anyOf"sv, "oneOf"sv, "allOf"sv}) {
    const Value* schemas = Field(schema, name);
    if (schemas == nullptr || !schemas->is(Kind::kSequence)) continue;
    for (const Value& one : schemas->items()) types |= Of(one, depth + 1);
  }
  if (types != 0) return types;
  return TypesOfKeywords([&](std::string_view keyword) { return Field(schema, keyword) != nullptr; });
}

JsonTypes SchemaTypes::OfReferred(const std::string& reference, int depth) {
  const auto [known, is_new] = referred_.try_emplace(reference, kJsonAny);
  if (!is_new) return known->second;
  const Value* target = Referred(root_, reference);
  const JsonTypes types = target == nullptr ? 0 : Of(*target, depth + 1);
  if (types != 0) referred_[reference] = types;
  return types != 0 ? types : kJsonAny;
}

const Value* PropertiesOf(const Value* schema) {
  const Value* properties = schema == nullptr ? nullptr : Field(*schema, "properties");
  return properties == nullptr || !properties->is(Kind::kDict) ? nullptr : properties;
}

// Calls `tool(name, schema)` for each; the schema of parameters is null where there is none.
void ForEachTool(const Value& tools, absl::FunctionRef<void(const std::string&, const Value*)> tool) {
  if (!tools.is(Kind::kSequence)) return;
  for (const Value& one : tools.items()) {
    const Value* function = Field(one, "function");
    const Value& described = function == nullptr ? one : *function;
    const Value* name = Field(described, "name");
    if (name == nullptr || !name->is(Kind::kText)) continue;
    tool(name->text(), Field(described, "parameters"));
  }
}

}  // namespace

JsonTypes TypesOfKeywords(absl::FunctionRef<bool(std::string_view)> has) {
  const std::string_view type = grammar::TypeOfKeywords(has);
  return type.empty() ? 0 : TypeOfName(type);
}

ToolSchemas::ToolSchemas(const Value& tools) {
  ForEachTool(tools, [&](const std::string& name, const Value* schema) {
    auto& parameters = tools_[name];
    const Value* properties = PropertiesOf(schema);
    if (properties == nullptr) return;
    SchemaTypes types_of(*schema);
    for (const auto& [parameter, one] : properties->dict().entries()) {
      if (const JsonTypes types = types_of.Of(one)) parameters[parameter.text()] = types;
    }
  });
}

// Tables have room for more than twice what is in them, just after they have grown.
size_t ToolSchemas::BytesOf(const Value& tools) {
  constexpr size_t kRoom = 3, kHolders = 2;
  constexpr size_t kTool = kRoom * sizeof(decltype(tools_)::value_type), kParameter = kRoom * (sizeof(std::string) + 16);
  size_t bytes = 0;
  ForEachTool(tools, [&](const std::string& name, const Value* schema) {
    bytes += kTool + name.size();
    const Value* properties = PropertiesOf(schema);
    if (properties == nullptr) return;
    for (const auto& [parameter, one] : properties->dict().entries()) bytes += kParameter + parameter.text().size();
  });
  return kHolders * bytes;
}

JsonTypes ToolSchemas::TypesOf(std::string_view tool, std::string_view parameter) const {
  const auto found = tools_.find(std::string(tool));
  if (found == tools_.end()) return kJsonString;
  const auto types = found->second.find(std::string(parameter));
  return types == found->second.end() ? kJsonString : types->second;
}

std::string JsonOfText(std::string_view text, JsonTypes types) {
  const std::string_view bare = Strip(text, std::nullopt, Side::kBoth);
  if ((types & kJsonNull) != 0 && (bare == "null" || bare == "None")) return "null";
  if ((types & kJsonBool) != 0 && (bare == "true" || bare == "True")) return "true";
  if ((types & kJsonBool) != 0 && (bare == "false" || bare == "False")) return "false";
  constexpr JsonTypes kAsTheyStand = kJsonNumber | kJsonObject | kJsonArray;
  if ((types & kAsTheyStand) != 0) {
    const auto value = ValueFromJson(bare);
    if (value.ok() && (TypeOfValue(*value) & types & kAsTheyStand) != 0) return std::string(bare);
  }
  return StrCat("\"", EscapedForJson(text), "\"");
}

std::string EscapedForJson(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string escaped;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (c == '"' || c == '\\') {
      escaped += {'\\', c};
    } else if (c == '\n') {
      escaped += "\\n";
    } else if (byte < 0x20) {
      escaped += "\\u00";
      escaped += {kHex[byte >> 4], kHex[byte & 15]};
    } else {
      escaped += c;
    }
  }
  return escaped;
}

}  // namespace moed::chat
