// What the tools of a conversation say of their parameters, for answers that write them without types.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "core/chat/value.h"

namespace moed::chat {

// Types of JSON values, as bits.
using JsonTypes = uint8_t;
constexpr JsonTypes kJsonString = 1;
constexpr JsonTypes kJsonNumber = 2;
constexpr JsonTypes kJsonBool = 4;
constexpr JsonTypes kJsonNull = 8;
constexpr JsonTypes kJsonObject = 16;
constexpr JsonTypes kJsonArray = 32;
constexpr JsonTypes kJsonAny = 63;

// What a schema without a type is about (grammar::TypeOfKeywords); 0 where no keyword says so.
JsonTypes TypesOfKeywords(absl::FunctionRef<bool(std::string_view keyword)> has);

// Immutable, thread-safe.
class ToolSchemas {
 public:
  // A list of {"function": {"name", "parameters"}} or of what stands in "function". Whatever is otherwise has no schema.
  explicit ToolSchemas(const Value& tools);
  // What those of `tools` take at most, where a parser and a reader of calls have them.
  static size_t BytesOf(const Value& tools);
  bool empty() const { return tools_.empty(); }
  bool Has(std::string_view tool) const { return tools_.count(std::string(tool)) > 0; }
  // kJsonString where nothing is said.
  JsonTypes TypesOf(std::string_view tool, std::string_view parameter) const;

 private:
  absl::flat_hash_map<std::string, absl::flat_hash_map<std::string, JsonTypes>> tools_;
};

// The text as a value of one of these types, in JSON; a string where it is no other.
std::string JsonOfText(std::string_view text, JsonTypes types);
// As it stands within a string of JSON; `text` may be a piece.
std::string EscapedForJson(std::string_view text);

}  // namespace moed::chat
