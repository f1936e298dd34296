#include "core/chat/answer/tool_schemas.h"

#include "absl/functional/function_ref.h"
#include "core/base/status.h"
#include "core/chat/json.h"
#include "core/chat/python_text.h"

namespace moed::chat {
namespace {

using namespace std::literals;  // NOLINT

constexpr int kMostDepth = 16;

const Value* Field(const Value& value, std::string_view name) {
  return value.is(Kind::kDict) ? value.dict().Find(name) : nullptr;
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

// 0 where the schema says nothing.
JsonTypes TypesOfSchema(const Value& schema, int depth) {
  if (depth > kMostDepth) return 0;
  if (const Value* type = Field(schema, "type")) {
    if (type->is(Kind::kText)) return TypeOfName(type->text());
    JsonTypes types = 0;
    if (type->is(Kind::kSequence)) {
      for (const Value& one : type->items()) types |= one.is(Kind::kText) ? TypeOfName(one.text()) : 0;
    }
    return types;
  }
  if (const Value* constant = Field(schema, "const")) return TypeOfValue(*constant);
  JsonTypes types = Field(schema, "$ref") != nullptr ? kJsonAny : 0;
  if (const Value* values = Field(schema, "enum"); values != nullptr && values->is(Kind::kSequence)) {
    for (const Value& value : values->items()) types |= TypeOfValue(value);
  }
  for (const std::string_view name : {"anyOf"sv, "oneOf"sv, "allOf"sv}) {
    const Value* schemas = Field(schema, name);
    if (schemas == nullptr || !schemas->is(Kind::kSequence)) continue;
    for (const Value& one : schemas->items()) types |= TypesOfSchema(one, depth + 1);
  }
  return types;
}

// Calls `tool(name, properties)` for each; properties are null where there is no schema.
void ForEachTool(const Value& tools, absl::FunctionRef<void(const std::string&, const Dict*)> tool) {
  if (!tools.is(Kind::kSequence)) return;
  for (const Value& one : tools.items()) {
    const Value* function = Field(one, "function");
    const Value& described = function == nullptr ? one : *function;
    const Value* name = Field(described, "name");
    if (name == nullptr || !name->is(Kind::kText)) continue;
    const Value* schema = Field(described, "parameters");
    const Value* properties = schema == nullptr ? nullptr : Field(*schema, "properties");
    tool(name->text(), properties == nullptr || !properties->is(Kind::kDict) ? nullptr : &properties->dict());
  }
}

}  // namespace

ToolSchemas::ToolSchemas(const Value& tools) {
  ForEachTool(tools, [&](const std::string& name, const Dict* properties) {
    auto& parameters = tools_[name];
    if (properties == nullptr) return;
    for (const auto& [parameter, one] : properties->entries()) {
      if (const JsonTypes types = TypesOfSchema(one, 0)) parameters[parameter.text()] = types;
    }
  });
}

// Tables have room for more than twice what is in them, just after they have grown.
size_t ToolSchemas::BytesOf(const Value& tools) {
  constexpr size_t kRoom = 3, kHolders = 2;
  constexpr size_t kTool = kRoom * sizeof(decltype(tools_)::value_type), kParameter = kRoom * (sizeof(std::string) + 16);
  size_t bytes = 0;
  ForEachTool(tools, [&](const std::string& name, const Dict* properties) {
    bytes += kTool + name.size();
    if (properties == nullptr) return;
    for (const auto& [parameter, one] : properties->entries()) bytes += kParameter + parameter.text().size();
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
