#include "core/grammar/number_bounds.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <compare>
#include <numeric>
#include <string_view>

#include "core/base/json_value.h"
#include "core/base/status.h"

namespace moed::grammar {
namespace {

constexpr uint64_t kBeyond = 1'000'000'000'000'000'000;  // has more than kMostWholeDigits digits
constexpr int kMostDigits = 18;                          // that an int64 holds whatever they are
constexpr int kMostPlaces = 17;                          // more tell no two doubles apart
constexpr int kExactDigits = 15;                         // numbers of so many digits are different doubles
constexpr int kMostMultiple = 100;
constexpr int kMostIndivisible = 12;  // of a multiple, without its factors 2 and 5: what is left of one is a state at every digit
constexpr int kMostMultiplePlaces = 9;

int64_t PowerOfTen(int exponent) {
  int64_t power = 1;
  for (int i = 0; i < exponent; ++i) power *= 10;
  return power;
}

// As a number is written in the shortest way.
struct Decimal {
  bool negative = false;
  std::string whole, fraction;

  int digits() const { return static_cast<int>(whole.size()); }
  // In units of the last of `places`; `up`: what has more is rounded up, otherwise down. They and the whole have kMostDigits.
  int64_t Units(int places, bool up) const {
    std::string shown = fraction.substr(0, places);
    shown.append(places - shown.size(), '0');
    const int64_t units = std::stoll(whole + shown);
    const bool cut = static_cast<int>(fraction.size()) > places;
    return (negative ? -units : units) + (cut && up != negative ? (up ? 1 : -1) : 0);
  }
};

Decimal DecimalOf(const Json& number) {
  char text[512];  // the least double has 324 places
  const auto written = number.is_number_float()
                           ? std::to_chars(text, text + sizeof(text), number.get<double>(), std::chars_format::fixed)
                           : std::to_chars(text, text + sizeof(text), number.get<int64_t>());
  std::string_view left(text, written.ptr - text);
  Decimal decimal;
  decimal.negative = left.front() == '-';
  if (decimal.negative) left.remove_prefix(1);
  const size_t point = std::min(left.find('.'), left.size());
  decimal.whole = left.substr(0, point);
  if (point < left.size()) decimal.fraction = left.substr(point + 1);
  return decimal;
}

bool IsNegative(const Json& number) {
  return number.is_number_float() ? number.get<double>() < 0 : !number.is_number_unsigned() && number.get<int64_t>() < 0;
}

// How the magnitude of a number is to kBeyond. As it stands there: a double has not all digits of a whole number.
std::partial_ordering ToBeyond(const Json& number) {
  if (number.is_number_float()) return std::abs(number.get<double>()) <=> static_cast<double>(kBeyond);
  const auto bits = number.is_number_unsigned() ? number.get<uint64_t>() : static_cast<uint64_t>(number.get<int64_t>());
  return (IsNegative(number) ? -bits : bits) <=> kBeyond;
}

bool IsHeldMultiple(int64_t multiple) {
  if (multiple > kMostMultiple) return false;
  for (const int factor : {2, 5}) {
    while (multiple % factor == 0) multiple /= factor;
  }
  return multiple <= kMostIndivisible;
}

class Reader {
 public:
  Reader(const Json& schema, bool whole, const std::string& path) : schema_(schema), whole_(whole), path_(path) {}

  absl::StatusOr<std::optional<NumberBounds>> Read() {
    MOED_ASSIGN_OR_RETURN(const auto minimum, Bound("minimum", -1));
    MOED_ASSIGN_OR_RETURN(const auto above, Bound("exclusiveMinimum", -1));
    MOED_ASSIGN_OR_RETURN(const auto maximum, Bound("maximum", 1));
    MOED_ASSIGN_OR_RETURN(const auto below, Bound("exclusiveMaximum", 1));
    constexpr const char* kKeywords[] = {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf"};
    if (std::ranges::none_of(kKeywords, [this](const char* name) { return schema_.contains(name); })) return std::nullopt;
    bounds_.places = whole_ ? 0 : std::min(kMostDigits - whole_digits_, kMostPlaces);
    if (schema_.contains("multipleOf")) {
      MOED_RETURN_IF_ERROR(SetMultiple(schema_["multipleOf"]));
    }
    if (minimum) AtLeast(minimum->Units(bounds_.places, true));
    if (above) AtLeast(above->Units(bounds_.places, false) + Step(*above));
    if (maximum) AtMost(maximum->Units(bounds_.places, false));
    if (below) AtMost(below->Units(bounds_.places, true) - Step(*below));
    return bounds_;
  }

 private:
  absl::Status Refused(const char* keyword, const std::string& words) const {
    return InvalidArgument(Place(path_), "'", keyword, "' is ", ShownJson(schema_[keyword]), words);
  }

  // `side`: -1 for what numbers are above, 1 for what they are below. Bounds that no number without an exponent is beyond are
  // none, but a double may be rounded up to kBeyond.
  absl::StatusOr<std::optional<Decimal>> Bound(const char* keyword, int side) {
    if (!schema_.contains(keyword)) return std::nullopt;
    const Json& value = schema_[keyword];
    if (!value.is_number()) return Refused(keyword, ", allowed are numbers");
    const auto to_beyond = ToBeyond(value);
    const bool is_out = to_beyond > 0 || (whole_ && to_beyond == 0);
    if (is_out && IsNegative(value) == (side < 0)) return std::nullopt;
    if (to_beyond >= 0)
      return Refused(keyword, StrCat(", allowed are numbers of ", kMostWholeDigits, " digits before the point"));
    const Decimal decimal = DecimalOf(value);
    whole_digits_ = std::max(whole_digits_, decimal.digits());
    return decimal;
  }

  absl::Status SetMultiple(const Json& value) {
    const bool positive = value.is_number() && value.get<double>() > 0 && value.get<double>() <= kMostMultiple;
    const Decimal decimal = positive ? DecimalOf(value) : Decimal();
    const int places = static_cast<int>(decimal.fraction.size());
    if (!positive || places > kMostMultiplePlaces || !IsHeldMultiple(decimal.Units(places, false)))
      return Refused("multipleOf", StrCat(", allowed are 1 to ", kMostMultiple, ", whole or of one of ", kMostMultiplePlaces,
                                          " places, of which factors 2 and 5 leave ", kMostIndivisible, " at most"));
    bounds_.multiple = static_cast<int>(decimal.Units(places, false));
    if (whole_) {
      bounds_.multiple /= static_cast<int>(std::gcd(int64_t{bounds_.multiple}, PowerOfTen(places)));
      return absl::OkStatus();
    }
    if (whole_digits_ + places > kMostDigits)
      return Refused("multipleOf", StrCat(", which has more than ", kMostDigits, " digits with the bounds"));
    bounds_.places = places;
    AtLeast(1 - PowerOfTen(kExactDigits));
    AtMost(PowerOfTen(kExactDigits) - 1);
    return absl::OkStatus();
  }

  // From an excluded bound on, in units: to a number that is another double, too.
  int64_t Step(const Decimal& bound) const { return whole_ ? 1 : PowerOfTen(bound.digits() + bounds_.places - kExactDigits); }

  void AtLeast(int64_t units) { bounds_.least = std::max(units, bounds_.least.value_or(units)); }
  void AtMost(int64_t units) { bounds_.most = std::min(units, bounds_.most.value_or(units)); }

  const Json& schema_;
  const bool whole_;
  const std::string& path_;
  int whole_digits_ = 1;  // of all bounds
  NumberBounds bounds_;
};

}  // namespace

absl::StatusOr<std::optional<NumberBounds>> ReadNumberBounds(const Json& schema, bool whole, const std::string& path) {
  return Reader(schema, whole, path).Read();
}

}  // namespace moed::grammar
