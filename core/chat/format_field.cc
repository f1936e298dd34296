#include <cmath>
#include <cstdio>

#include "core/chat/format.h"
#include "core/chat/python_text.h"

namespace moed::chat {
namespace {

std::string InBase(Integer value, int base, bool capitals) {
  const char* digits = capitals ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string out;
  do {
    out += digits[static_cast<int>(value % base)];
    value /= base;
  } while (value > 0);
  return {out.rbegin(), out.rend()};
}

std::string Grouped(const std::string& digits, char separator, size_t group) {
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % group == 0) out += separator;
    out += digits[i];
  }
  return out;
}

// Zeros between the sign and the number, where "=" asks for it.
std::string WithSign(bool negative, const std::string& prefix, std::string body, const FieldFormat& format) {
  std::string sign = negative ? "-" : format.sign == '-' ? "" : std::string(1, format.sign);
  sign += prefix;
  const char align = format.align == 0 ? '>' : format.align;
  if (align != '=') return Padded(sign + body, format, align);
  const int missing = format.width - static_cast<int>(sign.size() + body.size());
  std::string filled;
  for (int i = 0; i < missing; ++i) filled += format.fill;
  return sign + filled + body;
}

// Python's %g keeps at least one digit and strips zeros; C's does the same.
std::string Printed(double value, char type, int precision, bool alternate) {
  const std::string pattern = std::string("%") + (alternate ? "#" : "") + ".*" + type;
  char buffer[800];
  const int length = std::snprintf(buffer, sizeof(buffer), pattern.c_str(), precision, value);
  return {buffer, static_cast<size_t>(length)};
}

}  // namespace

std::string Padded(std::string_view text, const FieldFormat& format, char align) {
  const int missing = format.width - static_cast<int>(CountCharacters(text));
  if (missing <= 0) return std::string(text);
  const int left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string out;
  for (int i = 0; i < left; ++i) out += format.fill;
  out += text;
  for (int i = left; i < missing; ++i) out += format.fill;
  return out;
}

std::string WriteWhole(Integer value, const FieldFormat& format) {
  const bool negative = value < 0;
  // The magnitude of the least number has no positive form; it is written from its text.
  std::string digits = IntegerText(value);
  if (negative) digits.erase(0, 1);
  const Integer magnitude = negative ? -(value + 1) + 1 : value;
  std::string prefix;
  size_t group = 3;
  switch (format.type) {
    case 'x':
    case 'X':
      digits = InBase(magnitude, 16, format.type == 'X');
      prefix = format.type == 'X' ? "0X" : "0x";
      group = 4;
      break;
    case 'o':
      digits = InBase(magnitude, 8, false);
      prefix = "0o";
      group = 4;
      break;
    case 'b':
      digits = InBase(magnitude, 2, false);
      prefix = "0b";
      group = 4;
      break;
    default:
      break;
  }
  if (format.grouping != 0) digits = Grouped(digits, format.grouping, group);
  return WithSign(negative, format.alternate ? prefix : "", digits, format);
}

std::string WriteFloat(double value, const FieldFormat& format) {
  const bool negative = std::signbit(value) && !std::isnan(value);
  const double magnitude = std::fabs(value);
  char type = format.type;
  std::string body, tail;
  if (type == '%') tail = "%";
  if (!std::isfinite(magnitude)) {
    body = std::isnan(magnitude) ? "nan" : "inf";
    if (type == 'F' || type == 'E' || type == 'G') body = std::isnan(magnitude) ? "NAN" : "INF";
  } else if (type == 0 && format.precision < 0) {
    body = FloatText(magnitude);
  } else {
    const int precision = format.precision < 0 ? 6 : format.precision;
    const char c_type = type == '%' ? 'f' : type == 0 || type == 'n' ? 'g' : type;
    const int digits = c_type == 'g' || c_type == 'G' ? (precision == 0 ? 1 : precision) : precision;
    body = Printed(type == '%' ? magnitude * 100 : magnitude, c_type, digits, format.alternate);
    // Without a type there is always a digit behind the point.
    if (type == 0 && body.find_first_of(".en") == std::string::npos) body += ".0";
  }
  if (format.grouping != 0) {
    const size_t whole = std::min(body.find_first_not_of("0123456789"), body.size());
    body = Grouped(body.substr(0, whole), format.grouping, 3) + body.substr(whole);
  }
  return WithSign(negative, "", body + tail, format);
}

}  // namespace moed::chat
