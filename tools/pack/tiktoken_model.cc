#include "tools/pack/tiktoken_model.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "core/base/json_value.h"
#include "core/base/status.h"
#include "core/tokenizer/unicode.h"
#include "nlohmann/json.hpp"
#include "tools/pack/gguf/metadata.h"
#include "tools/pack/gguf/tokenizer.h"
#include "tools/pack/json_text.h"

namespace moed {
namespace {

constexpr size_t kAddedTokens = 256, kMostRanks = 1 << 24, kLongestToken = 1024;
constexpr int64_t kNormal = 1, kControl = 3, kUserDefined = 4;  // as in GGUF files

// Of bytes; every byte by itself has one.
using Ranks = absl::flat_hash_map<std::string, size_t>;

std::string SpellBytes(std::string_view bytes) {
  std::string spelled;
  for (const char byte : bytes) AppendUtf8(ByteLevelCharacter(static_cast<uint8_t>(byte)), spelled);
  return spelled;
}

absl::StatusOr<std::vector<std::string>> ReadTokens(std::string_view model) {
  std::vector<std::string> tokens;
  for (const absl::string_view line : absl::StrSplit(ToAbsl(model), '\n', absl::SkipWhitespace())) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(' ', 1));
    std::string bytes;
    const bool known = absl::Base64Unescape(parts.first, &bytes) && !bytes.empty() && bytes.size() <= kLongestToken;
    if (!known || parts.second != std::to_string(tokens.size()) || tokens.size() >= kMostRanks) {
      return InvalidArgument("line ", tokens.size() + 1, " is no token in base64 with rank ", tokens.size());
    }
    tokens.push_back(std::move(bytes));
  }
  return tokens;
}

// What is left of the token when neighbours are merged, the lowest rank first, as long as ranks are below its own.
std::vector<std::string_view> PartsBelow(std::string_view token, size_t rank, const Ranks& ranks) {
  std::vector<std::string_view> parts;
  for (size_t i = 0; i < token.size(); ++i) parts.push_back(token.substr(i, 1));
  while (parts.size() > 1) {
    size_t best = rank, at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find(absl::string_view(parts[i].data(), parts[i].size() + parts[i + 1].size()));
      if (found != ranks.end() && found->second < best) best = found->second, at = i;
    }
    if (best == rank) break;
    parts[at] = std::string_view(parts[at].data(), parts[at].size() + parts[at + 1].size());
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  return parts;
}

// Those that make a token of two; one that no merge makes is there for a text that is it as a whole.
std::vector<std::string> Merges(const std::vector<std::string>& tokens, const Ranks& ranks) {
  std::vector<std::string> merges;
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    const std::vector<std::string_view> parts = PartsBelow(tokens[rank], rank, ranks);
    if (parts.size() == 2) merges.push_back(StrCat(SpellBytes(parts[0]), " ", SpellBytes(parts[1])));
  }
  return merges;
}

// The tokens behind the ranks; those without a name are reserved.
absl::Status AddNamed(std::string_view settings, size_t first, std::vector<std::string>& texts, std::vector<int64_t>& types) {
  MOED_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJsonObject("tokenizer_config.json", settings));
  if (json.value("tokenizer_class", nlohmann::json()) != "TikTokenTokenizer") {
    return InvalidArgument(
        "tokenizer_class of tokenizer_config.json is not TikTokenTokenizer, Kimi's; others cut texts otherwise");
  }
  const nlohmann::json added = json.value("added_tokens_decoder", nlohmann::json::object());
  if (!added.is_object()) {
    return InvalidArgument("added_tokens_decoder of tokenizer_config.json is ", ShownJson(added), ", no object");
  }
  for (size_t id = first; id < first + kAddedTokens; ++id) {
    const nlohmann::json token = added.value(std::to_string(id), nlohmann::json::object());
    const nlohmann::json content = token.is_object() ? token.value("content", nlohmann::json()) : nlohmann::json();
    const bool special = !token.is_object() || token.value("special", nlohmann::json(true)) != false;
    texts.push_back(content.is_string() ? content.get<std::string>() : StrCat("<|reserved_token_", id, "|>"));
    types.push_back(special ? kControl : kUserDefined);
  }
  for (const auto& item : added.items()) {
    const nlohmann::json content = item.value().is_object() ? item.value().value("content", nlohmann::json()) : nlohmann::json();
    const bool there = std::any_of(texts.begin() + static_cast<std::ptrdiff_t>(first), texts.end(),
                                   [&](const std::string& text) { return content == text; });
    if (there) continue;
    return InvalidArgument("added token ", item.key(), " of tokenizer_config.json is not one of ", kAddedTokens, " from ", first);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Translate(std::string_view model, std::string_view settings) {
  MOED_ASSIGN_OR_RETURN(const std::vector<std::string> tokens, ReadTokens(model));
  Ranks ranks;
  std::vector<std::string> texts;
  for (const std::string& token : tokens) {
    if (!ranks.emplace(token, ranks.size()).second)
      return InvalidArgument("two tokens are the same, the second of rank ", ranks.size());
    texts.push_back(SpellBytes(token));
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (!ranks.contains(std::string(1, static_cast<char>(byte)))) return InvalidArgument("byte ", byte, " has no token");
  }
  std::vector<int64_t> types(texts.size(), kNormal);
  MOED_RETURN_IF_ERROR(AddNamed(settings, tokens.size(), texts, types));
  GgufMetadata metadata;
  metadata.Add("tokenizer.ggml.model", std::string("gpt2"));
  metadata.Add("tokenizer.ggml.pre", std::string("kimi-k2"));
  metadata.Add("tokenizer.ggml.tokens", std::move(texts));
  metadata.Add("tokenizer.ggml.token_type", std::move(types));
  metadata.Add("tokenizer.ggml.merges", Merges(tokens, ranks));
  MOED_ASSIGN_OR_RETURN(const std::string text, TokenizerJson(metadata));
  nlohmann::json json = nlohmann::json::parse(text);
  json["model"]["ignore_merges"] = true;
  return json.dump();
}

}  // namespace

absl::StatusOr<std::string> TiktokenTokenizer(std::string_view model, std::string_view settings) {
  absl::StatusOr<std::string> json = Translate(model, settings);
  return json.ok() ? json : InvalidArgument("tiktoken.model: ", json.status().message());
}

}  // namespace moed
