#include "core/chat/answer/schema_words.h"

#include <algorithm>

namespace moed::chat {

bool Asserts(const grammar::Json& schema, std::string_view keyword) {
  return schema.contains(std::string(keyword)) &&
         grammar::KindOf(keyword, schema[std::string(keyword)]) != grammar::Keyword::kAnnotation;
}

std::string OtherKeyword(const grammar::Json& schema, std::initializer_list<std::string_view> known) {
  for (const auto& [keyword, value] : schema.items()) {
    if (Asserts(schema, keyword) && std::find(known.begin(), known.end(), keyword) == known.end()) return keyword;
  }
  return "";
}

std::string PropertyPointer(std::string_view name) {
  std::string pointer = "/properties/";
  for (const char c : name) pointer += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return pointer;
}

}  // namespace moed::chat
