#include <cmath>

#include "core/base/status.h"
#include "core/chat/arithmetic.h"
#include "core/chat/filters.h"
#include "core/chat/python_text.h"
#include "core/chat/run.h"

namespace moed::chat {
namespace {

constexpr double kMostWhole = 1e38;  // floats beyond it are no integers here

absl::StatusOr<Value> Abs(Run&, const Value& value, const Arguments&) {
  if (value.is(Kind::kUndefined)) return InvalidArgument(value.as<Undefined>().Words());
  if (!value.is_number()) return InvalidArgument("bad operand type for abs(): '", TypeName(value), "'");
  if (value.is(Kind::kFloat)) return Value(std::fabs(value.as_float()));
  return value.as_integer() < 0 ? Negated(value) : Value(value.as_integer());
}

absl::StatusOr<Value> Truncated(double value, const Value& otherwise) {
  if (!std::isfinite(value)) return otherwise;
  if (std::fabs(value) > kMostWhole) return InvalidArgument("the chat template computes with a number of more than 127 bits");
  return Value(static_cast<Integer>(value));
}

absl::StatusOr<Value> Int(Run&, const Value& value, const Arguments& arguments) {
  const Value otherwise = arguments.Find(0) != nullptr ? arguments.at(0) : Value(Integer{0});
  MOED_ASSIGN_OR_RETURN(const Integer base, arguments.Whole(1, 10));
  if (value.is(Kind::kUndefined)) return InvalidArgument(value.as<Undefined>().Words());
  if (value.is_whole()) return Value(value.as_integer());
  if (value.is(Kind::kFloat)) {
    if (std::isinf(value.as_float())) return InvalidArgument("cannot convert float infinity to integer");
    return Truncated(value.as_float(), otherwise);
  }
  if (!value.is(Kind::kText)) return otherwise;
  if (base >= 2 && base <= 36) {
    if (const auto whole = ParseInteger(value.text(), static_cast<int>(base))) return Value(*whole);
  }
  const auto number = ParseFloat(value.text());
  return number ? Truncated(*number, otherwise) : otherwise;
}

absl::StatusOr<Value> Float(Run&, const Value& value, const Arguments& arguments) {
  const Value otherwise = arguments.Find(0) != nullptr ? arguments.at(0) : Value(0.0);
  if (value.is(Kind::kUndefined)) return InvalidArgument(value.as<Undefined>().Words());
  if (value.is_number()) return Value(value.as_float());
  if (!value.is(Kind::kText)) return otherwise;
  const auto number = ParseFloat(value.text());
  return number ? Value(*number) : otherwise;
}

// Half to even, of the exact decimal value: what printing does.
double RoundedFloat(double value, int digits) {
  if (!std::isfinite(value) || digits > 300) return value;
  if (digits >= 0) {
    char buffer[800];
    std::snprintf(buffer, sizeof(buffer), "%.*f", digits, value);
    return std::strtod(buffer, nullptr);
  }
  if (digits < -310) return std::copysign(0.0, value);
  const double unit = std::pow(10.0, -digits);
  return std::nearbyint(value / unit) * unit;
}

absl::StatusOr<Value> RoundedWhole(Integer value, Integer digits) {
  if (digits >= 0) return Value(value);
  Integer unit = 1;
  for (Integer i = digits; i < 0; ++i) {
    if (__builtin_mul_overflow(unit, Integer{10}, &unit) || unit > (Integer{1} << 120)) return Value(Integer{0});
  }
  const Integer rest = ((value % unit) + unit) % unit, down = value - rest;
  const bool up = rest * 2 > unit || (rest * 2 == unit && (down / unit) % 2 != 0);
  return Value(up ? down + unit : down);
}

absl::StatusOr<Value> Round(Run&, const Value& value, const Arguments& arguments) {
  MOED_ASSIGN_OR_RETURN(const std::string method, arguments.Text(1, "common"));
  if (method != "common" && method != "ceil" && method != "floor") {
    return InvalidArgument("method must be common, ceil or floor");
  }
  if (value.is(Kind::kUndefined)) return InvalidArgument(value.as<Undefined>().Words());
  if (!value.is_number()) return InvalidArgument("type ", TypeName(value), " doesn't define __round__ method");
  MOED_ASSIGN_OR_RETURN(const Integer precision, arguments.Whole(0, 0));
  const int digits = static_cast<int>(std::max<Integer>(std::min<Integer>(precision, 1000), -1000));
  if (method == "common") {
    if (value.is_whole()) return RoundedWhole(value.as_integer(), precision);
    return Value(RoundedFloat(value.as_float(), digits));
  }
  const double unit = std::pow(10.0, digits), scaled = value.as_float() * unit;
  if (!std::isfinite(scaled)) return InvalidArgument("cannot convert float infinity to integer");
  return Value((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

absl::StatusOr<Value> Default(Run& run, const Value& value, const Arguments& arguments) {
  const bool replaced = value.is(Kind::kUndefined) || (arguments.True(1) && !IsTrue(value));
  if (!replaced) return value;
  if (arguments.Find(0) != nullptr) return arguments.at(0);
  return run.NewOwnText("");
}

constexpr Filter kFilters[] = {
    {"abs", "", Abs},
    {"d", "default_value? boolean?", Default},
    {"default", "default_value? boolean?", Default},
    {"float", "default?", Float},
    {"int", "default? base?", Int},
    {"round", "precision? method?", Round},
};

}  // namespace

std::span<const Filter> NumberFilters() { return kFilters; }

}  // namespace moed::chat
