// What a tool's schema says, for syntaxes that write arguments one by one.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "core/grammar/schema_text.h"

namespace moed::chat {

// It has this keyword, which says what is allowed.
bool Asserts(const grammar::Json& schema, std::string_view keyword);
// A keyword besides these that says what is allowed; "" where there is none.
std::string OtherKeyword(const grammar::Json& schema, std::initializer_list<std::string_view> known);
// "/properties/NAME" as a JSON pointer (RFC 6901).
std::string PropertyPointer(std::string_view name);

}  // namespace moed::chat
