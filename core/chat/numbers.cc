#include <charconv>
#include <cmath>
#include <limits>

#include "core/chat/python_text.h"

namespace moed::chat {
namespace {

// Digits with single underscores between them, none of which may begin or end it. Nullopt for anything else.
std::optional<std::string> WithoutUnderscores(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const auto is_digit = [&](size_t at) { return at < text.size() && std::isalnum(static_cast<uint8_t>(text[at])) != 0; };
    if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) return std::nullopt;
  }
  return out;
}

int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return std::numeric_limits<int>::max();
}

bool IsPrefixOf(std::string_view digits, int base) {
  if (digits.size() < 3 || digits[0] != '0') return false;
  const char letter = static_cast<char>(digits[1] | 0x20);
  return (base == 16 && letter == 'x') || (base == 8 && letter == 'o') || (base == 2 && letter == 'b');
}

}  // namespace

std::string IntegerText(__int128 value) {
  if (value == 0) return "0";
  const bool negative = value < 0;
  std::string digits;
  for (; value != 0; value /= 10) {
    const int digit = static_cast<int>(value % 10);
    digits += static_cast<char>('0' + (digit < 0 ? -digit : digit));
  }
  if (negative) digits += '-';
  return {digits.rbegin(), digits.rend()};
}

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  const std::string_view shortest(buffer, static_cast<size_t>(end - buffer));
  const size_t e = shortest.find('e');
  int exponent = 0;
  std::from_chars(shortest.data() + e + 1 + (shortest[e + 1] == '+' ? 1 : 0), end, exponent);
  if (exponent < -4 || exponent >= 16) return std::string(shortest);
  const auto fixed_end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed).ptr;
  std::string fixed(buffer, fixed_end);
  return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
}

std::optional<__int128> ParseInteger(std::string_view text, int base) {
  const auto plain = WithoutUnderscores(Strip(text, std::nullopt, Side::kBoth));
  if (!plain) return std::nullopt;
  std::string_view digits = *plain;
  const bool negative = !digits.empty() && digits[0] == '-';
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) digits.remove_prefix(1);
  if (IsPrefixOf(digits, base)) digits.remove_prefix(2);
  if (digits.empty()) return std::nullopt;
  __int128 value = 0;
  for (const char c : digits) {
    const int digit = DigitOf(c);
    if (digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, static_cast<__int128>(base), &value)) return std::nullopt;
    if (__builtin_sub_overflow(value, static_cast<__int128>(digit), &value)) return std::nullopt;
  }
  if (negative) return value;
  __int128 positive = 0;
  if (__builtin_sub_overflow(static_cast<__int128>(0), value, &positive)) return std::nullopt;
  return positive;
}

std::optional<double> ParseFloat(std::string_view text) {
  const auto plain = WithoutUnderscores(Strip(text, std::nullopt, Side::kBoth));
  if (!plain) return std::nullopt;
  std::string_view number = *plain;
  if (!number.empty() && number[0] == '+') number.remove_prefix(1);
  if (number.empty() || (number[0] == '+') || (plain->size() != number.size() && number[0] == '-')) return std::nullopt;
  if (number.find_first_of("xXpP") != std::string_view::npos) return std::nullopt;
  double value = 0;
  const auto read = std::from_chars(number.data(), number.data() + number.size(), value);
  if (read.ptr != number.data() + number.size()) return std::nullopt;
  if (read.ec == std::errc::result_out_of_range) {
    const bool negative = number[0] == '-';
    const size_t e = number.find_first_of("eE");
    const bool tiny = e != std::string_view::npos && number.substr(e + 1, 1) == "-";
    const double magnitude = tiny ? 0.0 : std::numeric_limits<double>::infinity();
    return negative ? -magnitude : magnitude;
  }
  if (read.ec != std::errc()) return std::nullopt;
  return value;
}

}  // namespace moed::chat
