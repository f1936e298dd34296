// tokenizer.json to the parts of a compiled tokenizer; pack time only.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/tokenizer/blob.h"
#include "core/tokenizer/tokenizer_spec.h"

namespace moed {

using Json = nlohmann::json;

// One object of tokenizer.json with the name by which errors call it ("pre_tokenizer.Split"). The JSON must outlive it.
class JsonPart {
 public:
  // INVALID_ARGUMENT unless `json` is an object with no other keys than `keys`.
  static absl::StatusOr<JsonPart> Open(const Json& json, std::string name, std::initializer_list<std::string_view> keys);

  const std::string& name() const { return name_; }
  const Json& json(std::string_view key) const;  // null when absent
  bool HasValue(std::string_view key) const { return !json(key).is_null(); }

  absl::StatusOr<std::string> String(std::string_view key) const;
  absl::StatusOr<bool> Bool(std::string_view key) const;
  absl::StatusOr<bool> BoolOr(std::string_view key, bool absent) const;
  absl::StatusOr<uint32_t> Number(std::string_view key) const;
  absl::Status Wrong(std::string_view key, std::string_view expected) const;

 private:
  JsonPart(const Json& json, std::string name) : json_(&json), name_(std::move(name)) {}
  const Json* json_;
  std::string name_;
};

// The "type" of a part; "null" for JSON null.
absl::StatusOr<std::string> TypeOf(const Json& json, std::string_view name);

// A null part has no steps, a Sequence has those of its members (`members` is their key), anything else is one step.
absl::StatusOr<std::vector<const Json*>> FlattenSequence(const Json& json, std::string_view name, const char* members);

// Reads normalizer, pre_tokenizer, post_processor and decoder into `spec`. Whether the vocabulary is byte-level follows from
// them.
absl::Status CompileSteps(const Json& root, TokenizerSpec& spec);

// Reads model and added_tokens into `spec` (whose steps are there) and the vocabulary's sections. Returns the number of pieces.
absl::StatusOr<size_t> CompileVocabulary(const Json& root, TokenizerSpec& spec, PerBlobSection<std::string>& sections);

}  // namespace moed
