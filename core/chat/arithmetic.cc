#include "core/chat/arithmetic.h"

#include <cmath>

#include "core/base/status.h"
#include "core/chat/format.h"
#include "core/chat/iterator.h"
#include "core/chat/python_text.h"
#include "core/chat/run.h"
#include "core/chat/show.h"

namespace moed::chat {
namespace {

absl::Status TooLarge() { return InvalidArgument("the chat template computes with a number of more than 127 bits"); }

absl::StatusOr<Value> IntegerPower(Integer base, Integer exponent) {
  if (exponent < 0) {
    if (base == 0) return InvalidArgument("0.0 cannot be raised to a negative power");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  if (base == 0 || base == 1) return Value(exponent == 0 ? Integer{1} : base);
  if (base == -1) return Value(Integer{exponent % 2 == 0 ? 1 : -1});
  Integer power = 1;
  for (Integer i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(power, base, &power)) return TooLarge();
  }
  return Value(power);
}

absl::StatusOr<Value> ComputeIntegers(Operator op, Integer a, Integer b) {
  Integer result = 0;
  switch (op) {
    case Operator::kAdd:
      if (__builtin_add_overflow(a, b, &result)) return TooLarge();
      return Value(result);
    case Operator::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) return TooLarge();
      return Value(result);
    case Operator::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) return TooLarge();
      return Value(result);
    case Operator::kDivide:
      if (b == 0) return InvalidArgument("division by zero");
      return Value(static_cast<double>(a) / static_cast<double>(b));
    case Operator::kFloorDivide:
    case Operator::kModulo: {
      const bool floor = op == Operator::kFloorDivide;
      if (b == 0) return InvalidArgument(floor ? "integer division or modulo by zero" : "integer modulo by zero");
      if (b == -1) return floor ? ComputeIntegers(Operator::kSubtract, 0, a) : Value(Integer{0});
      const bool down = a % b != 0 && (a < 0) != (b < 0);
      return Value(floor ? a / b - (down ? 1 : 0) : a % b + (down ? b : 0));
    }
    case Operator::kPower:
      return IntegerPower(a, b);
  }
  return TooLarge();
}

absl::StatusOr<Value> FloatPower(double a, double b) {
  if (a == 0 && b < 0) return InvalidArgument("0.0 cannot be raised to a negative power");
  if (a < 0 && std::isfinite(b) && b != std::floor(b)) {
    return InvalidArgument("the chat template raises a negative number to a fraction");
  }
  const double power = std::pow(a, b);
  if (std::isinf(power) && std::isfinite(a) && std::isfinite(b)) return InvalidArgument("(34, 'Numerical result out of range')");
  return Value(power);
}

absl::StatusOr<Value> ComputeFloats(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return Value(a + b);
    case Operator::kSubtract:
      return Value(a - b);
    case Operator::kMultiply:
      return Value(a * b);
    case Operator::kDivide:
      if (b == 0) return InvalidArgument("float division by zero");
      return Value(a / b);
    case Operator::kFloorDivide:
    case Operator::kModulo: {
      const bool floor = op == Operator::kFloorDivide;
      if (b == 0) return InvalidArgument(floor ? "float floor division by zero" : "float modulo");
      double rest = std::fmod(a, b);
      if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
      if (!floor) return Value(rest == 0 ? std::copysign(0.0, b) : rest);
      const double quotient = (a - rest) / b, down = std::floor(quotient);
      return Value(quotient - down > 0.5 ? down + 1 : down);
    }
    case Operator::kPower:
      return FloatPower(a, b);
  }
  return TooLarge();
}

absl::Status Unsupported(Operator op, const Value& left, const Value& right) {
  const std::string_view sign = op == Operator::kPower ? "** or pow()" : SignOf(op);
  return InvalidArgument("unsupported operand type(s) for ", sign, ": '", TypeName(left), "' and '", TypeName(right), "'");
}

absl::StatusOr<Value> AddTexts(Run& run, const Text& left, const Text& right) {
  const bool markup = left.markup || right.markup;
  MOED_RETURN_IF_ERROR(run.Fits(left.text.size() + right.text.size()));
  MarkedText sum;
  for (const Text* text : {&left, &right}) {
    if (markup && !text->markup) {
      sum.Append(Escaped(*text));
    } else {
      sum.Append(*text);
    }
  }
  return run.NewText(std::move(sum), markup);
}

bool IsPlainSequence(const Value& value) { return value.is(Kind::kSequence) && value.as<Sequence>().flavor <= Flavor::kTuple; }

absl::StatusOr<Value> Add(Run& run, const Value& left, const Value& right) {
  if (left.is(Kind::kText)) {
    if (right.is(Kind::kText)) return AddTexts(run, left.as<Text>(), right.as<Text>());
    return InvalidArgument("can only concatenate str (not \"", TypeName(right), "\") to str");
  }
  if (!IsPlainSequence(left)) return Unsupported(Operator::kAdd, left, right);
  if (!IsPlainSequence(right) || left.as<Sequence>().flavor != right.as<Sequence>().flavor) {
    const std::string_view type = TypeName(left);
    return InvalidArgument("can only concatenate ", type, " (not \"", TypeName(right), "\") to ", type);
  }
  MOED_RETURN_IF_ERROR(run.Fits((left.items().size() + right.items().size()) * sizeof(Value)));
  std::vector<Value> items = left.items();
  items.insert(items.end(), right.items().begin(), right.items().end());
  return run.NewSequence(left.as<Sequence>().flavor, std::move(items));
}

absl::StatusOr<Value> Repeat(Run& run, const Value& what, const Value& times) {
  if (!times.is_whole()) return InvalidArgument("can't multiply sequence by non-int of type '", TypeName(times), "'");
  const bool is_text = what.is(Kind::kText);
  const size_t bytes = is_text ? what.text().size() : what.items().size() * sizeof(Value);
  const Integer count = bytes == 0 ? 0 : std::max<Integer>(times.as_integer(), 0);
  constexpr Integer kMost = Integer{1} << 40;
  const Integer whole = std::min(count, kMost) * static_cast<Integer>(bytes);
  MOED_RETURN_IF_ERROR(run.Fits(whole > kMost ? static_cast<size_t>(kMost) : static_cast<size_t>(whole)));
  if (is_text) {
    MarkedText text;
    text.text.reserve(static_cast<size_t>(whole));
    for (Integer i = 0; i < count; ++i) text.Append(what.as<Text>());
    return run.NewText(std::move(text), what.as<Text>().markup);
  }
  std::vector<Value> items;
  for (Integer i = 0; i < count; ++i) items.insert(items.end(), what.items().begin(), what.items().end());
  return run.NewSequence(what.as<Sequence>().flavor, std::move(items));
}

absl::StatusOr<Value> Multiply(Run& run, const Value& left, const Value& right) {
  if (left.is(Kind::kText) || IsPlainSequence(left)) return Repeat(run, left, right);
  if (right.is(Kind::kText) || IsPlainSequence(right)) return Repeat(run, right, left);
  return Unsupported(Operator::kMultiply, left, right);
}

absl::StatusOr<Value> NumberFor(std::string_view sign, const Value& value) {
  if (value.is(Kind::kUndefined)) return InvalidArgument(value.as<Undefined>().Words());
  if (!value.is_number()) return InvalidArgument("bad operand type for unary ", sign, ": '", TypeName(value), "'");
  return value.is(Kind::kFloat) ? value : Value(value.as_integer());
}

}  // namespace

std::string_view SignOf(Operator op) {
  constexpr std::string_view kSigns[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSigns[static_cast<int>(op)];
}

absl::StatusOr<Value> Compute(Run& run, Operator op, const Value& left, const Value& right) {
  if (left.is_whole() && right.is_whole()) return ComputeIntegers(op, left.as_integer(), right.as_integer());
  if (left.is_number() && right.is_number()) return ComputeFloats(op, left.as_float(), right.as_float());
  if (left.is(Kind::kUndefined)) return InvalidArgument(left.as<Undefined>().Words());
  if (op == Operator::kModulo && left.is(Kind::kText)) return FormatPercent(run, left, right);
  if (right.is(Kind::kUndefined)) return InvalidArgument(right.as<Undefined>().Words());
  if (op == Operator::kAdd) return Add(run, left, right);
  if (op == Operator::kMultiply) return Multiply(run, left, right);
  return Unsupported(op, left, right);
}

absl::StatusOr<Value> Negated(const Value& value) {
  MOED_ASSIGN_OR_RETURN(const Value number, NumberFor("-", value));
  if (number.is(Kind::kFloat)) return Value(-number.as_float());
  return ComputeIntegers(Operator::kSubtract, 0, number.as_integer());
}

absl::StatusOr<Value> Positive(const Value& value) { return NumberFor("+", value); }

bool IsTrue(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
    case Kind::kUndefined:
      return false;
    case Kind::kBool:
    case Kind::kInteger:
    case Kind::kFloat:
      return value.as_float() != 0;
    case Kind::kText:
      return !value.text().empty();
    case Kind::kSequence:
      return !value.items().empty();
    case Kind::kDict:
      return !value.dict().entries().empty();
    default:
      return true;
  }
}

}  // namespace moed::chat
