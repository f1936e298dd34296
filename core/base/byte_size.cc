#include "core/base/byte_size.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_format.h"
#include "core/base/status.h"

namespace moed {
namespace {

struct Unit {
  std::string_view name;
  uint64_t bytes;
};
constexpr Unit kUnits[] = {
    {"B", 1},
    {"kB", 1000},
    {"MB", 1000 * 1000},
    {"GB", 1000ull * 1000 * 1000},
    {"TB", 1000ull * 1000 * 1000 * 1000},
    {"KiB", 1ull << 10},
    {"MiB", 1ull << 20},
    {"GiB", 1ull << 30},
    {"TiB", 1ull << 40},
};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

absl::Status BadBytes(std::string_view text) {
  return InvalidArgument("\"", text,
                         "\" is no number of bytes; allowed are numbers like 4096, 8MiB or 1.5GiB below 2^64 bytes, units: ",
                         JoinNames(kUnits, [](const Unit& unit) { return unit.name; }));
}

}  // namespace

absl::StatusOr<uint64_t> ParseBytes(std::string_view text) {
  size_t i = 0;
  uint64_t whole = 0;
  for (; i < text.size() && IsDigit(text[i]); ++i) {
    if (__builtin_mul_overflow(whole, 10, &whole) || __builtin_add_overflow(whole, text[i] - '0', &whole)) return BadBytes(text);
  }
  if (i == 0) return BadBytes(text);
  double fraction = 0;
  if (i < text.size() && text[i] == '.') {
    const size_t first = ++i;
    for (double digit = 0.1; i < text.size() && IsDigit(text[i]); ++i, digit /= 10) fraction += digit * (text[i] - '0');
    if (i == first) return BadBytes(text);
  }
  std::string_view name = text.substr(i);
  if (name.starts_with(' ')) name.remove_prefix(1);
  const auto unit = std::find_if(std::begin(kUnits), std::end(kUnits), [name](const Unit& u) { return u.name == name; });
  if (unit == std::end(kUnits) && i != text.size()) return BadBytes(text);
  const uint64_t scale = i == text.size() ? 1 : unit->bytes;
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(whole, scale, &bytes)) return BadBytes(text);
  if (__builtin_add_overflow(bytes, static_cast<uint64_t>(fraction * static_cast<double>(scale) + 0.5), &bytes))
    return BadBytes(text);
  return bytes;
}

std::string FormatBytes(uint64_t bytes) {
  if (bytes < 1024) return StrCat(bytes, " B");
  constexpr std::string_view kNames[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1023.95 && unit + 1 < std::size(kNames); ++unit) value /= 1024;
  return absl::StrFormat("%.1f %s", value, std::string(kNames[unit]));
}

}  // namespace moed
