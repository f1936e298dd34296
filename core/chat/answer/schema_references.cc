#include "core/chat/answer/schema_references.h"

#include <algorithm>
#include <functional>
#include <string>

#include "core/chat/answer/schema_words.h"
#include "core/chat/answer/tool_schemas.h"

namespace moed::chat {
namespace {

using grammar::Json;

constexpr int kMostDepth = 16;
constexpr int kMostSteps = 16;

bool AnyOf(const Json& list, auto takes) { return list.is_array() && std::any_of(list.begin(), list.end(), takes); }

std::string_view ReferenceOf(const Json& schema) {
  const bool refers = schema.contains("$ref") && schema["$ref"].is_string();
  return refers ? std::string_view(schema["$ref"].get_ref<const std::string&>()) : "";
}

}  // namespace

const Json& SchemaReferences::Said(const Json& schema) {
  const Json* said = &schema;
  for (int step = 0; step < kMostSteps && said->is_object(); ++step) {
    const Json* next = nullptr;
    if (const std::string_view reference = ReferenceOf(*said); !reference.empty() && OtherKeyword(*said, {"$ref"}).empty()) {
      next = Target(reference);
    } else if (said->contains("allOf") && OtherKeyword(*said, {"allOf"}).empty()) {
      const Json& all = (*said)["allOf"];
      if (all.is_array() && all.size() == 1) next = &all.front();
    }
    if (next == nullptr) break;
    said = next;
  }
  return *said;
}

bool SchemaReferences::TakesString(const Json& schema, int depth) {
  if (!schema.is_object() || depth > kMostDepth) return schema != Json(false);
  const auto of_schema = [&](const Json& one) { return TakesString(one, depth + 1); };
  if (schema.contains("type")) {
    const Json& type = schema["type"];
    return type == "string" || AnyOf(type, [](const Json& one) { return one == "string"; });
  }
  if (schema.contains("const")) return schema["const"].is_string();
  if (schema.contains("enum")) return AnyOf(schema["enum"], [](const Json& one) { return one.is_string(); });
  for (const char* keyword : {"anyOf", "oneOf"}) {
    if (schema.contains(keyword)) return AnyOf(schema[keyword], of_schema);
  }
  if (const std::string_view reference = ReferenceOf(schema); !reference.empty()) return ReferredTakesString(reference, depth);
  if (schema.contains("allOf") && AnyOf(schema["allOf"], std::not_fn(of_schema))) return false;
  const JsonTypes types = TypesOfKeywords([&](std::string_view keyword) { return Asserts(schema, keyword); });
  return types == 0 || types == kJsonString;
}

bool SchemaReferences::ReferredTakesString(std::string_view reference, int depth) {
  const Json* target = Target(reference);
  if (target == nullptr) return true;
  if (const auto [known, is_new] = takes_string_.try_emplace(target, true); !is_new) return known->second;
  const bool takes = TakesString(*target, depth + 1);
  takes_string_[target] = takes;
  return takes;
}

const Json* SchemaReferences::Target(std::string_view reference) {
  const auto [found, is_new] = targets_.try_emplace(reference, nullptr);
  if (is_new) found->second = grammar::Referred(root_, reference);
  return found->second;
}

}  // namespace moed::chat
