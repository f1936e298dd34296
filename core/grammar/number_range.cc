#include "core/grammar/number_range.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moed::grammar {
namespace {

class Range {
 public:
  Range(int places, int multiple, ProgramBuilder& builder, Pc next)
      : places_(places), multiple_(multiple), builder_(builder), next_(next), powers_{1 % multiple} {
    for (int i = 0; i < places + kMostWholeDigits; ++i) powers_.push_back(powers_.back() * 10 % multiple);
  }

  // From 0 on, without a sign.
  Pc Magnitudes(std::optional<int64_t> least, std::optional<int64_t> most) {
    if (most && *most < std::max<int64_t>(least.value_or(0), 0)) return ProgramBuilder::kDead;
    std::string low = Digits(std::max<int64_t>(least.value_or(0), 0));
    const std::string high = most ? Digits(*most) : std::string(kMostWholeDigits + places_, '9');
    std::vector<Pc> parts;
    while (low.size() < high.size()) {
      parts.push_back(Digit(low, std::string(low.size(), '9'), true, true, 0));
      low.assign(low.size() + 1, '0');
      low.front() = '1';
    }
    parts.push_back(Digit(low, high, true, true, 0));
    return builder_.Either(parts);
  }

 private:
  // One before the point at least.
  std::string Digits(int64_t units) const {
    const std::string digits = std::to_string(units);
    return std::string(std::max<size_t>(digits.size(), places_ + 1) - digits.size(), '0') + digits;
  }

  // What follows the digits so far, when `low` and `high` are what is left of the bounds. `tight_*`: the digits so far are those
  // of the bound. `rest`: what they leave of the multiple, were all others zeros.
  Pc After(std::string_view low, std::string_view high, bool tight_low, bool tight_high, int rest) {
    if (tight_low || tight_high) return NewAfter(low, high, tight_low, tight_high, rest);
    const auto found = free_.find({low.size(), rest});
    if (found != free_.end()) return found->second;
    return free_[{low.size(), rest}] = NewAfter(low, high, false, false, rest);
  }

  Pc NewAfter(std::string_view low, std::string_view high, bool tight_low, bool tight_high, int rest) {
    const size_t left = low.size(), places = places_;
    const bool above = !tight_low || low.find_first_not_of('0') == std::string_view::npos;
    const Pc end = left <= places && rest == 0 && above ? next_ : ProgramBuilder::kDead;
    if (left == 0) return end;
    Pc more = Digit(low, high, tight_low, tight_high, rest);
    if (left == places && more != ProgramBuilder::kDead) more = builder_.Bytes('.', '.', more);
    if (more == ProgramBuilder::kDead) return end;
    return end == ProgramBuilder::kDead ? more : builder_.Either(end, more);
  }

  Pc Digit(std::string_view low, std::string_view high, bool tight_low, bool tight_high, int rest) {
    const char first = tight_low ? low[0] : '0', last = tight_high ? high[0] : '9';
    // Whether a digit of the bound leaves some of it that other digits may be beyond.
    const bool low_left = tight_low && low.find_first_not_of('0', 1) != std::string_view::npos;
    const bool high_left = tight_high && high.find_first_not_of('9', 1) != std::string_view::npos;
    const auto rest_after = [&](char digit) { return (rest + (digit - '0') * powers_[low.size() - 1]) % multiple_; };
    std::vector<Pc> parts;
    for (char from = first, to = first; from <= last; from = ++to) {
      const bool is_low = low_left && from == first, is_high = high_left && from == last;
      const auto alike = [&](char digit) { return rest_after(digit) == rest_after(from) && !(high_left && digit == last); };
      while (!is_low && to < last && alike(static_cast<char>(to + 1))) ++to;
      const Pc after = After(low.substr(1), high.substr(1), is_low, is_high, rest_after(from));
      if (after != ProgramBuilder::kDead)
        parts.push_back(builder_.Bytes(static_cast<uint8_t>(from), static_cast<uint8_t>(to), after));
    }
    return builder_.Either(parts);
  }

  const int places_, multiple_;
  ProgramBuilder& builder_;
  const Pc next_;
  std::vector<int> powers_;                    // of ten, what they leave of the multiple
  std::map<std::pair<size_t, int>, Pc> free_;  // what follows where no bound is near
};

std::optional<int64_t> Negated(std::optional<int64_t> bound) { return bound ? std::optional(-*bound) : std::nullopt; }

}  // namespace

Pc Numbers(const NumberBounds& bounds, ProgramBuilder& builder, Pc next) {
  Range range(bounds.places, bounds.multiple, builder, next);
  const Pc positive = range.Magnitudes(bounds.least, bounds.most);
  // Below zero a number is its magnitude between the bounds' magnitudes.
  const Pc negative = range.Magnitudes(Negated(bounds.most), Negated(bounds.least));
  return builder.Either(positive, builder.Bytes('-', '-', negative));
}

}  // namespace moed::grammar
