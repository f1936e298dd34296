// JSON schemas as read, and what their keywords say when several hold at once.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace moed::grammar {

using Json = nlohmann::ordered_json;

// INVALID_ARGUMENT for what is no JSON, or nested too deep.
absl::StatusOr<Json> ReadSchema(std::string_view text);

// "at /properties/x: ", for messages.
std::string Place(const std::string& path);

enum class Keyword : uint8_t { kAnnotation, kAssertion, kUnknown };
// Of a keyword with what it says: a format that is not held, and 'nullable' and 'uniqueItems' that are false, are annotations.
Keyword KindOf(std::string_view name, const Json& value);

// What it takes to join schemas: values that are copied and names that are compared. It has an end, for each of a schema's
// references may copy nearly all of it.
class JoiningWork {
 public:
  static constexpr size_t kMost = 1 << 20;
  // INVALID_ARGUMENT "at PATH: ..." beyond kMost in all.
  absl::Status Add(size_t work, const std::string& path);
  absl::Status AddComparisons(size_t names, const std::string& path);
  // To copy it.
  absl::Status AddCopy(const Json& value, const std::string& path);

 private:
  size_t done_ = 0;
};

// A schema for what both accept, without the other's annotations. INVALID_ARGUMENT "at PATH: ..." where that cannot be said with
// the keywords that are supported.
absl::StatusOr<Json> Both(Json one, const Json& other, const std::string& path, JoiningWork& work);

// What is at "/$defs/x". Null where nothing is.
const Json* AtPointer(const Json& root, std::string_view pointer);
// The schema at "#/$defs/x", percent-encoded or not, or at the root's own "$id" with such an end. Null where there is none.
const Json* Referred(const Json& root, std::string_view reference);

}  // namespace moed::grammar
