// JSON schemas as read, and what their keywords say when several hold at once.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
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

// What a schema without a type is about: "object", "array", "string" or "number"; "" where no keyword says so. `has`: whether it
// has one.
std::string_view TypeOfKeywords(absl::FunctionRef<bool(std::string_view keyword)> has);

// The names and indexes that lead to what is referred to as "#/$defs/x", percent-encoded or not, or as `id` with such an end:
// that of the root, "" where it has none. Nullopt for a reference that leads elsewhere.
std::optional<std::vector<std::string>> StepsOf(std::string_view id, std::string_view reference);
// The element of an array with `count` that a step names. Nullopt where it names none.
std::optional<size_t> IndexOf(std::string_view step, size_t count);
// What is at "/$defs/x". Null where nothing is.
const Json* AtPointer(const Json& root, std::string_view pointer);
// What is where StepsOf lead. Null where nothing is.
const Json* Referred(const Json& root, std::string_view reference);

}  // namespace moed::grammar
