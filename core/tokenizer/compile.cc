#include "core/tokenizer/compile.h"

#include <algorithm>

#include "core/base/json_value.h"
#include "core/base/status.h"
#include "core/tokenizer/piece_decoder.h"
#include "core/tokenizer/tokenizer.h"
#include "core/tokenizer/vocabulary.h"

namespace moed {

absl::StatusOr<JsonPart> JsonPart::Open(const Json& json, std::string name, std::initializer_list<std::string_view> keys) {
  if (!json.is_object()) return InvalidArgument(name, " is not an object");
  for (const auto& [key, value] : json.items()) {
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    return InvalidArgument(name, ": key '", key,
                           "' is not supported; supported: ", JoinNames(keys, [](std::string_view known) { return known; }));
  }
  return JsonPart(json, std::move(name));
}

const Json& JsonPart::json(std::string_view key) const {
  static const Json kNull;
  const auto found = json_->find(std::string(key));
  return found == json_->end() ? kNull : *found;
}

absl::Status JsonPart::Wrong(std::string_view key, std::string_view expected) const {
  const std::string found = json(key).dump(-1, ' ', true, Json::error_handler_t::replace);
  return InvalidArgument(name_, ".", key, " is ", std::string_view(found).substr(0, 100), "; supported: ", expected);
}

absl::StatusOr<std::string> JsonPart::String(std::string_view key) const {
  if (!json(key).is_string()) return Wrong(key, "a string");
  return json(key).get<std::string>();
}

absl::StatusOr<bool> JsonPart::Bool(std::string_view key) const {
  if (!json(key).is_boolean()) return Wrong(key, "true, false");
  return json(key).get<bool>();
}

absl::StatusOr<bool> JsonPart::BoolOr(std::string_view key, bool absent) const {
  if (!HasValue(key)) return absent;
  return Bool(key);
}

absl::StatusOr<uint32_t> JsonPart::Number(std::string_view key) const {
  constexpr uint32_t kMost = (1u << 24) - 1;
  const Json& value = json(key);
  if (!value.is_number_unsigned() || value.get<uint64_t>() > kMost) return Wrong(key, StrCat("a number from 0 to ", kMost));
  return value.get<uint32_t>();
}

absl::StatusOr<std::string> TypeOf(const Json& json, std::string_view name) {
  if (json.is_null()) return "null";
  if (!json.is_object() || !json.contains("type") || !json["type"].is_string()) return InvalidArgument(name, " has no type");
  return json["type"].get<std::string>();
}

absl::StatusOr<std::vector<const Json*>> FlattenSequence(const Json& json, std::string_view name, const char* members) {
  MOED_ASSIGN_OR_RETURN(const std::string type, TypeOf(json, name));
  if (type == "null") return std::vector<const Json*>();
  if (type != "Sequence") return std::vector<const Json*>{&json};
  MOED_ASSIGN_OR_RETURN(const JsonPart part, JsonPart::Open(json, StrCat(name, ".Sequence"), {"type", members}));
  if (!part.json(members).is_array()) return part.Wrong(members, "a list");
  std::vector<const Json*> steps;
  for (const Json& member : part.json(members)) {
    MOED_ASSIGN_OR_RETURN(const std::string member_type, TypeOf(member, name));
    if (member_type == "Sequence") return InvalidArgument(name, ": a Sequence inside a Sequence is not supported");
    if (member_type != "null") steps.push_back(&member);
  }
  return steps;
}

absl::StatusOr<std::string> CompileTokenizer(std::string_view tokenizer_json) {
  MOED_ASSIGN_OR_RETURN(const Json root, ParseForeignJson<Json>("tokenizer.json", tokenizer_json));
  // Truncation and padding are set anew for each call by those who use them, so what the file says about them has no effect.
  MOED_RETURN_IF_ERROR(JsonPart::Open(root, "tokenizer.json",
                                      {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                                       "post_processor", "decoder", "model"})
                           .status());
  TokenizerSpec spec;
  PerBlobSection<std::string> sections;
  MOED_RETURN_IF_ERROR(CompileSteps(root, spec));
  MOED_ASSIGN_OR_RETURN(const size_t pieces, CompileVocabulary(root, spec, sections));
  std::string& serialized = sections[static_cast<size_t>(BlobSection::kSpec)];
  serialized = SerializeSpec(spec);
  if (const auto parsed = ParseSpec(serialized, pieces); !parsed.ok()) {
    return InvalidArgument("tokenizer.json: ", parsed.status().message());
  }
  MOED_ASSIGN_OR_RETURN(std::string blob, SealBlob(sections));
  MOED_ASSIGN_OR_RETURN(const auto opened, OpenBlob(blob));
  MOED_ASSIGN_OR_RETURN(const Vocabulary vocabulary, Vocabulary::Open(opened));
  if (!spec.bpe.byte_level) MOED_RETURN_IF_ERROR(CheckDecodedPieces(spec.decoder, vocabulary));
  return blob;
}

}  // namespace moed
