#include "tools/pack/chat_template.h"

#include <filesystem>

#include "core/base/json_value.h"
#include "core/base/status.h"
#include "tools/pack/json_text.h"

namespace moed {
namespace {

constexpr uint64_t kMostBytes = 64 << 20;
constexpr std::string_view kKey = "chat_template";

// A list has objects with a name and a template each.
absl::StatusOr<std::string> DefaultOf(const std::string& path, const nlohmann::json& list) {
  for (const nlohmann::json& item : list) {
    const bool named = item.is_object() && item.contains("name") && item.contains("template") && item["template"].is_string();
    if (!named) return InvalidArgument(path, ": ", kKey, " is a list, expected objects with \"name\" and \"template\"");
    if (item["name"] == "default") return item["template"].get<std::string>();
  }
  return std::string();
}

}  // namespace

absl::StatusOr<std::string> ReadChatTemplate(const std::string& folder) {
  const std::string own = std::filesystem::path(folder) / "chat_template.jinja";
  const std::string config = std::filesystem::path(folder) / "tokenizer_config.json";
  std::error_code ignored;
  if (std::filesystem::exists(own, ignored)) return ReadText(own, kMostBytes);
  if (!std::filesystem::exists(config, ignored)) return std::string();
  MOED_ASSIGN_OR_RETURN(const std::string text, ReadText(config, kMostBytes));
  MOED_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJsonObject(config, text));
  const auto value = json.find(kKey);
  if (value == json.end() || value->is_null()) return std::string();
  if (value->is_string()) return value->get<std::string>();
  if (value->is_array()) return DefaultOf(config, *value);
  return InvalidArgument(config, ": ", kKey, " is ", ShownJson(*value), ", expected a text or a list");
}

}  // namespace moed
