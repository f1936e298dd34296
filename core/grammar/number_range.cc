#include "core/grammar/number_range.h"

#include <string>
#include <string_view>

namespace moed::grammar {
namespace {

class Range {
 public:
  Range(ProgramBuilder& builder, Pc next) : builder_(builder), next_(next) {}

  Pc Digits(size_t count, Pc next) {
    for (size_t i = 0; i < count; ++i) next = builder_.Bytes('0', '9', next);
    return next;
  }

  // What follows equally many digits of `low` and `high`; `tight_*`: the digits so far are those of the bound.
  Pc Between(std::string_view low, std::string_view high, bool tight_low, bool tight_high) {
    if (low.empty()) return next_;
    if (!tight_low && !tight_high) return Digits(low.size(), next_);
    const char first = tight_low ? low[0] : '0';
    const char last = tight_high ? high[0] : '9';
    const std::string_view low_rest = low.substr(1), high_rest = high.substr(1);
    if (first == last) return Byte(first, last, Between(low_rest, high_rest, tight_low, tight_high));
    std::vector<Pc> parts;
    if (tight_low) parts.push_back(Byte(first, first, Between(low_rest, high_rest, true, false)));
    if (tight_high) parts.push_back(Byte(last, last, Between(low_rest, high_rest, false, true)));
    const char from = static_cast<char>(first + (tight_low ? 1 : 0));
    const char to = static_cast<char>(last - (tight_high ? 1 : 0));
    if (from <= to) parts.push_back(Byte(from, to, Digits(low_rest.size(), next_)));
    return builder_.Either(parts);
  }

 private:
  Pc Byte(char low, char high, Pc next) { return builder_.Bytes(static_cast<uint8_t>(low), static_cast<uint8_t>(high), next); }

  ProgramBuilder& builder_;
  const Pc next_;
};

}  // namespace

Pc WholeNumbers(uint64_t least, std::optional<uint64_t> most, ProgramBuilder& builder, Pc next) {
  Range range(builder, next);
  std::string low = std::to_string(least);
  const std::string high = most ? std::to_string(*most) : std::string(kMostWholeDigits, '9');
  std::vector<Pc> parts;
  while (low.size() < high.size()) {
    parts.push_back(range.Between(low, std::string(low.size(), '9'), true, true));
    low.assign(low.size() + 1, '0');
    low.front() = '1';
  }
  parts.push_back(range.Between(low, high, true, true));
  return builder.Either(parts);
}

}  // namespace moed::grammar
