// Upper and lower case, and what kinds of characters a text has, as Python's str has them. UTF-8 that is valid.
#pragma once

#include <string>
#include <string_view>

namespace moed::chat {

std::string Upper(std::string_view text);
std::string Lower(std::string_view text);  // a sigma that ends a word is a final one
std::string Title(std::string_view text);
std::string Capitalized(std::string_view text);
std::string CaseFolded(std::string_view text);
std::string CaseSwapped(std::string_view text);

// False for "", where Python's predicates are.
bool IsUpper(std::string_view text);
bool IsLower(std::string_view text);
bool IsTitle(std::string_view text);
bool IsAlphabetic(std::string_view text);
bool IsDecimal(std::string_view text);
bool IsDigit(std::string_view text);
bool IsNumeric(std::string_view text);
bool IsAlphanumeric(std::string_view text);
bool IsAllSpace(std::string_view text);
bool IsIdentifier(std::string_view text);
bool IsAllPrintable(std::string_view text);  // true for ""

}  // namespace moed::chat
