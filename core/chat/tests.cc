#include "core/chat/tests.h"

#include <algorithm>
#include <iterator>

#include "core/base/status.h"
#include "core/chat/arithmetic.h"
#include "core/chat/equality.h"
#include "core/chat/filters.h"
#include "core/chat/letter_case.h"
#include "core/chat/run.h"
#include "core/chat/show.h"

namespace moed::chat {
namespace {

template <Kind kind>
absl::StatusOr<bool> Is(Run&, const Value& value, const Arguments&) {
  return value.is(kind);
}

absl::StatusOr<bool> IsDefined(Run&, const Value& value, const Arguments&) { return !value.is(Kind::kUndefined); }

template <bool wanted>
absl::StatusOr<bool> IsBool(Run&, const Value& value, const Arguments&) {
  return value.is(Kind::kBool) && value.as_bool() == wanted;
}

absl::StatusOr<bool> IsNumber(Run&, const Value& value, const Arguments&) { return value.is_number(); }

// Jinja's: has a length and items by number or key.
absl::StatusOr<bool> IsSequence(Run&, const Value& value, const Arguments&) {
  if (value.is(Kind::kSequence)) return value.as<Sequence>().flavor <= Flavor::kRange;
  return value.is(Kind::kText) || value.is(Kind::kDict) || value.is(Kind::kUndefined);
}

absl::StatusOr<bool> IsIterableTest(Run&, const Value& value, const Arguments&) {
  return IsIterable(value) || value.is(Kind::kLoop);
}

absl::StatusOr<bool> IsCallable(Run&, const Value& value, const Arguments&) {
  return value.is(Kind::kFunction) || value.is(Kind::kLoop) || value.is(Kind::kUndefined);
}

absl::StatusOr<bool> IsEscaped(Run&, const Value& value, const Arguments&) {
  return value.is(Kind::kText) && value.as<Text>().markup;
}

using Predicate = bool (*)(std::string_view);
template <Predicate holds>
absl::StatusOr<bool> OfText(Run& run, const Value& value, const Arguments&) {
  MOED_ASSIGN_OR_RETURN(const MarkedText text, Str(run, value));
  return holds(text.text);
}

absl::StatusOr<bool> Divides(Run& run, const Value& value, const Value& by, Integer rest) {
  MOED_ASSIGN_OR_RETURN(const Value modulo, Compute(run, Operator::kModulo, value, by));
  return AreEqual(run, modulo, Value(rest));
}
absl::StatusOr<bool> IsOdd(Run& run, const Value& value, const Arguments&) { return Divides(run, value, Value(Integer{2}), 1); }
absl::StatusOr<bool> IsEven(Run& run, const Value& value, const Arguments&) { return Divides(run, value, Value(Integer{2}), 0); }
absl::StatusOr<bool> IsDivisible(Run& run, const Value& value, const Arguments& arguments) {
  return Divides(run, value, arguments.at(0), 0);
}

template <bool wanted>
absl::StatusOr<bool> Equal(Run& run, const Value& value, const Arguments& arguments) {
  MOED_ASSIGN_OR_RETURN(const bool equal, AreEqual(run, value, arguments.at(0)));
  return equal == wanted;
}

template <Order order>
absl::StatusOr<bool> InOrderTest(Run& run, const Value& value, const Arguments& arguments) {
  return InOrder(run, order, value, arguments.at(0));
}

absl::StatusOr<bool> IsIn(Run& run, const Value& value, const Arguments& arguments) {
  return Contains(run, arguments.at(0), value);
}

absl::StatusOr<bool> IsSame(Run&, const Value& value, const Arguments& arguments) { return value.same_object(arguments.at(0)); }

absl::StatusOr<bool> NamesFilter(Run&, const Value& value, const Arguments&) {
  return value.is(Kind::kText) && FindFilter(value.text()) != nullptr;
}
absl::StatusOr<bool> NamesTest(Run&, const Value& value, const Arguments&) {
  return value.is(Kind::kText) && FindTest(value.text()) != nullptr;
}

constexpr Test kTests[] = {
    {"!=", "other", Equal<false>},
    {"<", "other", InOrderTest<Order::kLess>},
    {"<=", "other", InOrderTest<Order::kLessOrEqual>},
    {"==", "other", Equal<true>},
    {">", "other", InOrderTest<Order::kGreater>},
    {">=", "other", InOrderTest<Order::kGreaterOrEqual>},
    {"boolean", "", Is<Kind::kBool>},
    {"callable", "", IsCallable},
    {"defined", "", IsDefined},
    {"divisibleby", "num", IsDivisible},
    {"eq", "other", Equal<true>},
    {"equalto", "other", Equal<true>},
    {"escaped", "", IsEscaped},
    {"even", "", IsEven},
    {"false", "", IsBool<false>},
    {"filter", "", NamesFilter},
    {"float", "", Is<Kind::kFloat>},
    {"ge", "other", InOrderTest<Order::kGreaterOrEqual>},
    {"greaterthan", "other", InOrderTest<Order::kGreater>},
    {"gt", "other", InOrderTest<Order::kGreater>},
    {"in", "seq", IsIn},
    {"integer", "", Is<Kind::kInteger>},
    {"iterable", "", IsIterableTest},
    {"le", "other", InOrderTest<Order::kLessOrEqual>},
    {"lessthan", "other", InOrderTest<Order::kLess>},
    {"lower", "", OfText<IsLower>},
    {"lt", "other", InOrderTest<Order::kLess>},
    {"mapping", "", Is<Kind::kDict>},
    {"ne", "other", Equal<false>},
    {"none", "", Is<Kind::kNone>},
    {"number", "", IsNumber},
    {"odd", "", IsOdd},
    {"sameas", "other", IsSame},
    {"sequence", "", IsSequence},
    {"string", "", Is<Kind::kText>},
    {"test", "", NamesTest},
    {"true", "", IsBool<true>},
    {"undefined", "", Is<Kind::kUndefined>},
    {"upper", "", OfText<IsUpper>},
};

}  // namespace

const Test* FindTest(std::string_view name) {
  const auto found = std::find_if(std::begin(kTests), std::end(kTests), [&](const Test& row) { return row.name == name; });
  return found == std::end(kTests) ? nullptr : found;
}

absl::StatusOr<bool> ApplyTest(Run& run, const Test& test, const Value& value, Call call) {
  MOED_RETURN_IF_ERROR(run.Work(1));
  MOED_ASSIGN_OR_RETURN(const Arguments arguments, Arguments::Bind(test.name, test.parameters, std::move(call)));
  return test.run(run, value, arguments);
}

std::vector<std::string_view> TestNames() {
  std::vector<std::string_view> names;
  for (const Test& test : kTests) names.push_back(test.name);
  return names;
}

}  // namespace moed::chat
