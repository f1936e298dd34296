#include "tools/pack/chat_settings.h"

#include <cmath>
#include <filesystem>
#include <limits>

#include "core/base/json_value.h"
#include "core/base/status.h"
#include "core/chat/template.h"
#include "tools/pack/json_text.h"

namespace moed {
namespace {

using nlohmann::json;

constexpr uint64_t kMostBytes = 64 << 20;
constexpr std::string_view kTemplate = "chat_template";

// Null where there is no such file.
absl::StatusOr<json> ReadObjectIfThere(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return json();
  MOED_ASSIGN_OR_RETURN(const std::string text, ReadText(path.string(), kMostBytes));
  return ParseJsonObject(path.string(), text);
}

// Null where it is not there.
json ValueOf(const json& object, std::string_view key) {
  const auto found = object.find(key);
  return found == object.end() ? json() : *found;
}

// A list has objects with a name and a template each.
absl::StatusOr<std::string> DefaultOf(const std::string& path, const json& list) {
  for (const json& item : list) {
    const bool named = item.is_object() && item.contains("name") && item.contains("template") && item["template"].is_string();
    if (!named) return InvalidArgument(path, ": ", kTemplate, " is a list, expected objects with \"name\" and \"template\"");
    if (item["name"] == "default") return item["template"].get<std::string>();
  }
  return std::string();
}

absl::StatusOr<std::string> TemplateOf(const std::string& path, const json& tokenizer_config) {
  const json value = ValueOf(tokenizer_config, kTemplate);
  if (value.is_null()) return std::string();
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array()) return DefaultOf(path, value);
  return InvalidArgument(path, ": ", kTemplate, " is ", ShownJson(value), ", expected a text or a list");
}

// As templates know them, and the keys of a GGUF file.
struct TokenName {
  std::string_view name;
  std::string_view gguf_key;
};
constexpr TokenName kTokenNames[] = {
    {"bos_token", "tokenizer.ggml.bos_token_id"},     {"eos_token", "tokenizer.ggml.eos_token_id"},
    {"unk_token", "tokenizer.ggml.unknown_token_id"}, {"sep_token", "tokenizer.ggml.seperator_token_id"},
    {"pad_token", "tokenizer.ggml.padding_token_id"}, {"cls_token", "tokenizer.ggml.cls_token_id"},
    {"mask_token", "tokenizer.ggml.mask_token_id"}};

std::string TextOf(const json& object) { return object.empty() ? "" : object.dump(); }

// Each a text, or an object with the text as its "content".
absl::StatusOr<std::string> NamedTokensOf(const std::string& path, const json& tokenizer_config) {
  json named = json::object();
  for (const TokenName& token : kTokenNames) {
    json value = ValueOf(tokenizer_config, token.name);
    if (value.is_object()) value = ValueOf(value, "content");
    if (value.is_null()) continue;
    if (!value.is_string()) return InvalidArgument(path, ": ", token.name, " is ", ShownJson(value), ", expected a text");
    named[std::string(token.name)] = value;
  }
  return TextOf(named);
}

// Keys of generation_config.json that are fields of moe.v1.Sampling, and the keys of a GGUF file.
struct SamplingKey {
  std::string_view name;
  std::string_view gguf_key;
  double least, most;
  bool whole = false;
};
constexpr SamplingKey kSamplingKeys[] = {{"temperature", "general.sampling.temp", 0, std::numeric_limits<float>::max()},
                                         {"top_k", "general.sampling.top_k", 0, std::numeric_limits<int32_t>::max(), true},
                                         {"top_p", "general.sampling.top_p", std::numeric_limits<float>::min(), 1},
                                         {"min_p", "general.sampling.min_p", 0, 1},
                                         {"repetition_penalty", "general.sampling.penalty_repeat",
                                          std::numeric_limits<float>::min(), std::numeric_limits<float>::max()}};

absl::StatusOr<std::string> SamplingOf(const std::string& path, const json& generation_config) {
  json sampling = json::object();
  for (const SamplingKey& key : kSamplingKeys) {
    const json value = ValueOf(generation_config, key.name);
    if (value.is_null()) continue;
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    if (!(number >= key.least && number <= key.most) || (key.whole && number != std::floor(number))) {
      return InvalidArgument(path, ": ", key.name, " is ", ShownJson(value), ", allowed are ", key.least, " to ", key.most,
                             key.whole ? ", whole" : "");
    }
    sampling[std::string(key.name)] = key.whole ? json(static_cast<int64_t>(number)) : value;
  }
  return TextOf(sampling);
}

absl::StatusOr<std::string> SamplingOf(const GgufMetadata& metadata) {
  json sampling = json::object();
  for (const SamplingKey& key : kSamplingKeys) {
    if (!metadata.Has(key.gguf_key)) continue;
    if (key.whole) {
      MOED_ASSIGN_OR_RETURN(sampling[std::string(key.name)],
                            metadata.Int(key.gguf_key, static_cast<int64_t>(key.least), static_cast<int64_t>(key.most)));
    } else {
      MOED_ASSIGN_OR_RETURN(sampling[std::string(key.name)], metadata.Number(key.gguf_key, key.least, key.most));
    }
  }
  return TextOf(sampling);
}

}  // namespace

absl::StatusOr<ChatSettings> ReadChatSettings(const std::string& folder) {
  const std::filesystem::path in(folder);
  const std::string own = in / "chat_template.jinja", tokenizer = in / "tokenizer_config.json";
  const std::string generation = in / "generation_config.json";
  std::error_code ignored;
  ChatSettings settings;
  MOED_ASSIGN_OR_RETURN(const json tokenizer_config, ReadObjectIfThere(tokenizer));
  MOED_ASSIGN_OR_RETURN(const json generation_config, ReadObjectIfThere(generation));
  if (std::filesystem::exists(own, ignored)) {
    MOED_ASSIGN_OR_RETURN(settings.chat_template, ReadText(own, kMostBytes));
  } else {
    MOED_ASSIGN_OR_RETURN(settings.chat_template, TemplateOf(tokenizer, tokenizer_config));
  }
  MOED_ASSIGN_OR_RETURN(settings.named_tokens, NamedTokensOf(tokenizer, tokenizer_config));
  MOED_ASSIGN_OR_RETURN(settings.sampling_defaults, SamplingOf(generation, generation_config));
  return settings;
}

absl::StatusOr<ChatSettings> ReadChatSettings(const GgufMetadata& metadata) {
  ChatSettings settings;
  if (constexpr std::string_view kKey = "tokenizer.chat_template"; metadata.Has(kKey)) {
    MOED_ASSIGN_OR_RETURN(settings.chat_template, metadata.String(kKey));
  }
  MOED_ASSIGN_OR_RETURN(const std::vector<std::string>* texts, metadata.Strings("tokenizer.ggml.tokens"));
  json named = json::object();
  for (const TokenName& token : kTokenNames) {
    if (!metadata.Has(token.gguf_key)) continue;
    MOED_ASSIGN_OR_RETURN(const int64_t id, metadata.Int(token.gguf_key, 0, static_cast<int64_t>(texts->size()) - 1));
    named[std::string(token.name)] = (*texts)[static_cast<size_t>(id)];
  }
  settings.named_tokens = TextOf(named);
  MOED_ASSIGN_OR_RETURN(settings.sampling_defaults, SamplingOf(metadata));
  return settings;
}

absl::StatusOr<std::vector<std::string>> CheckChatTemplate(std::string_view chat_template) {
  const auto parsed = chat::Template::Parse(chat_template);
  if (parsed.ok()) return parsed->UnknownNames();
  return InvalidArgument("the chat template cannot be run: ", parsed.status().message(),
                         "; --chat-template FILE takes another, --chat-template none packs without one");
}

}  // namespace moed
