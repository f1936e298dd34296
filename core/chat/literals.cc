#include "core/chat/literals.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "core/base/status.h"
#include "core/tokenizer/unicode.h"

namespace moed::chat {
namespace {

bool IsDigitOf(char c, int base) {
  if (base == 16) return std::isxdigit(static_cast<uint8_t>(c)) != 0;
  return c >= '0' && c < '0' + base;
}

// Digits with single underscores between them.
size_t DigitsBytes(std::string_view text, int base) {
  size_t bytes = 0;
  while (bytes < text.size()) {
    const size_t digit = bytes > 0 && text[bytes] == '_' ? bytes + 1 : bytes;
    if (digit >= text.size() || !IsDigitOf(text[digit], base)) break;
    bytes = digit + 1;
  }
  return bytes;
}

size_t ExponentBytes(std::string_view text) {
  if (text.empty() || (text[0] | 0x20) != 'e') return 0;
  const size_t sign = text.size() > 1 && (text[1] == '+' || text[1] == '-') ? 2 : 1;
  const size_t digits = DigitsBytes(text.substr(sign), 10);
  return digits == 0 ? 0 : sign + digits;
}

size_t PrefixedBytes(std::string_view text, int base) {
  size_t at = 2;
  if (at < text.size() && text[at] == '_') ++at;
  const size_t digits = DigitsBytes(text.substr(at), base);
  return digits == 0 ? 0 : at + digits;
}

std::optional<char32_t> CodeOf(std::string_view digits, size_t count, int base) {
  if (digits.size() < count) return std::nullopt;
  char32_t code = 0;
  for (const char c : digits.substr(0, count)) {
    if (!IsDigitOf(c, base)) return std::nullopt;
    const int digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
    code = code * static_cast<char32_t>(base) + static_cast<char32_t>(digit);
  }
  return code;
}

// \x, \u and \U with their digits; 0 bytes for none of them.
absl::StatusOr<size_t> AppendHexEscape(std::string_view escape, std::string& out) {
  const size_t digits = escape[0] == 'x' ? 2 : escape[0] == 'u' ? 4 : 8;
  const auto code = CodeOf(escape.substr(1), digits, 16);
  if (!code) return InvalidArgument("truncated \\", std::string(1, escape[0]), " escape");
  if (*code > 0x10FFFF || (*code >= 0xD800 && *code <= 0xDFFF)) return InvalidArgument("illegal Unicode character");
  AppendUtf8(*code, out);
  return 1 + digits;
}

// What follows a backslash; returns how many bytes of it were used.
absl::StatusOr<size_t> AppendEscape(std::string_view escape, std::string& out) {
  constexpr std::string_view kLetters = "\n\\'\"abfnrtv", kMeanings = "\n\\'\"\a\b\f\n\r\t\v";
  const char letter = escape[0];
  if (letter == 'x' || letter == 'u' || letter == 'U') return AppendHexEscape(escape, out);
  if (letter == 'N') return InvalidArgument("the escape \\N{...} is not supported");
  if (const size_t meant = kLetters.find(letter); meant != std::string_view::npos) {
    if (letter != '\n') out += kMeanings[meant];  // a line that goes on
    return 1;
  }
  size_t digits = 0;
  while (digits < 3 && digits < escape.size() && IsDigitOf(escape[digits], 8)) ++digits;
  if (digits > 0) {
    AppendUtf8(*CodeOf(escape, digits, 8), out);
    return digits;
  }
  out += '\\';
  return 0;  // no escape: both characters stand for themselves
}

}  // namespace

size_t FloatBytes(std::string_view text, bool after_point) {
  if (after_point) return 0;
  const size_t whole = DigitsBytes(text, 10);
  if (whole == 0) return 0;
  size_t fraction = 0;
  if (whole < text.size() && text[whole] == '.') {
    const size_t digits = DigitsBytes(text.substr(whole + 1), 10);
    fraction = digits == 0 ? 0 : 1 + digits;
  }
  const size_t exponent = ExponentBytes(text.substr(whole + fraction));
  return fraction + exponent == 0 ? 0 : whole + fraction + exponent;
}

int BaseOf(std::string_view integer) {
  if (integer.size() < 2 || integer[0] != '0') return 10;
  const char letter = static_cast<char>(integer[1] | 0x20);
  return letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
}

size_t IntegerBytes(std::string_view text) {
  if (const int base = BaseOf(text); base != 10) {
    if (const size_t bytes = PrefixedBytes(text, base); bytes > 0) return bytes;
  }
  if (text[0] != '0') return DigitsBytes(text, 10);
  return DigitsBytes(text.substr(0, std::min(text.find_first_not_of("0_"), text.size())), 10);
}

size_t LiteralBytes(std::string_view text) {
  for (size_t at = 1; at < text.size(); ++at) {
    if (text[at] == '\\') {
      ++at;
    } else if (text[at] == text[0]) {
      return at + 1;
    }
  }
  return 0;
}

absl::StatusOr<std::string> Unescaped(std::string_view literal) {
  std::string out;
  size_t at = 0;
  while (at < literal.size()) {
    if (literal[at] != '\\') {
      out += literal[at++];
      continue;
    }
    MOED_ASSIGN_OR_RETURN(const size_t used, AppendEscape(literal.substr(at + 1), out));
    at += 1 + used;
  }
  return out;
}

}  // namespace moed::chat
