#include "core/chat/equality.h"

#include <algorithm>

#include "core/base/status.h"
#include "core/chat/error.h"
#include "core/chat/iterator.h"
#include "core/chat/run.h"

namespace moed::chat {
namespace {

// Lists are compared element by element, so that lists which share lists could take forever: `left` counts down.
class Comparison {
 public:
  explicit Comparison(size_t fuel) : fuel_(fuel) {}
  size_t used() const { return used_; }

  bool Equal(const Value& a, const Value& b) {
    if (++used_ > fuel_) return false;
    if (a.is_number() && b.is_number()) return EqualNumbers(a, b);
    if (a.kind() != b.kind()) return false;
    switch (a.kind()) {
      case Kind::kText:
        used_ += a.as<Text>().characters / 64;
        return a.text() == b.text();
      case Kind::kSequence:
        return EqualSequences(a.as<Sequence>(), b.as<Sequence>());
      case Kind::kDict:
        return a.same_object(b) || EqualDicts(a.dict(), b.dict());
      case Kind::kUndefined:
        return true;
      default:
        return a.same_object(b);
    }
  }

 private:
  static bool EqualNumbers(const Value& a, const Value& b) {
    if (a.is(Kind::kFloat) || b.is(Kind::kFloat)) return a.as_float() == b.as_float();
    return a.as_integer() == b.as_integer();
  }
  bool EqualSequences(const Sequence& a, const Sequence& b) {
    if (a.flavor != b.flavor || a.items.size() != b.items.size()) return false;
    for (size_t i = 0; i < a.items.size(); ++i) {
      if (!Equal(a.items[i], b.items[i])) return false;
    }
    return true;
  }
  bool EqualDicts(const Dict& a, const Dict& b) {
    if (a.entries().size() != b.entries().size()) return false;
    return std::all_of(a.entries().begin(), a.entries().end(), [&](const Dict::Entry& entry) {
      const Value* other = b.Find(entry.first);
      return other != nullptr && Equal(entry.second, *other);
    });
  }

  const size_t fuel_;
  size_t used_ = 0;
};

constexpr std::string_view SignOf(Order order) {
  constexpr std::string_view kSigns[] = {"<", "<=", ">", ">="};
  return kSigns[static_cast<int>(order)];
}

template <class T>
bool Holds(Order order, const T& a, const T& b) {
  switch (order) {
    case Order::kLess:
      return a < b;
    case Order::kLessOrEqual:
      return a <= b;
    case Order::kGreater:
      return a > b;
    case Order::kGreaterOrEqual:
      return a >= b;
  }
  return false;
}

absl::StatusOr<bool> InOrderSequences(Run& run, Order order, const Sequence& a, const Sequence& b) {
  const size_t common = std::min(a.items.size(), b.items.size());
  for (size_t i = 0; i < common; ++i) {
    MOED_ASSIGN_OR_RETURN(const bool equal, AreEqual(run, a.items[i], b.items[i]));
    if (!equal) return InOrder(run, order, a.items[i], b.items[i]);
  }
  return Holds(order, a.items.size(), b.items.size());
}

}  // namespace

bool AreEqual(const Value& a, const Value& b) { return Comparison(10'000).Equal(a, b); }

absl::StatusOr<bool> AreEqual(Run& run, const Value& a, const Value& b) {
  constexpr size_t kFuel = 10'000'000;
  Comparison comparison(kFuel);
  const bool equal = comparison.Equal(a, b);
  MOED_RETURN_IF_ERROR(run.Work(comparison.used()));
  return equal;
}

absl::StatusOr<bool> InOrder(Run& run, Order order, const Value& a, const Value& b) {
  MOED_RETURN_IF_ERROR(run.Work(1));
  for (const Value* value : {&a, &b}) {
    if (value->is(Kind::kUndefined)) return InvalidArgument(value->as<Undefined>().Words());
  }
  if (a.is_whole() && b.is_whole()) return Holds(order, a.as_integer(), b.as_integer());
  if (a.is_number() && b.is_number()) return Holds(order, a.as_float(), b.as_float());
  if (a.is(Kind::kText) && b.is(Kind::kText)) return Holds(order, a.text(), b.text());  // UTF-8 sorts as code points do
  if (a.is(Kind::kSequence) && b.is(Kind::kSequence)) {
    const auto &left = a.as<Sequence>(), &right = b.as<Sequence>();
    const bool ordered = left.flavor == Flavor::kList || left.flavor == Flavor::kTuple;
    if (ordered && left.flavor == right.flavor) return InOrderSequences(run, order, left, right);
  }
  return InvalidArgument("'", SignOf(order), "' not supported between instances of '", TypeName(a), "' and '", TypeName(b), "'");
}

absl::StatusOr<bool> IsLess(Run& run, const Value& a, const Value& b) { return InOrder(run, Order::kLess, a, b); }

absl::StatusOr<bool> Contains(Run& run, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kText:
      if (!item.is(Kind::kText)) {
        return InvalidArgument("'in <string>' requires string as left operand, not ", TypeName(item));
      }
      MOED_RETURN_IF_ERROR(run.WorkOn(container.text().size()));
      return container.text().find(item.text()) != std::string::npos;
    case Kind::kDict:
      if (!IsHashable(item)) return InvalidArgument("unhashable type: '", TypeName(item), "'");
      MOED_RETURN_IF_ERROR(run.Work(item.is(Kind::kText) ? 1 : container.dict().entries().size()));
      return container.dict().Find(item) != nullptr;
    case Kind::kSequence:
    case Kind::kIterator: {
      MOED_ASSIGN_OR_RETURN(const auto iterator, Iterate(run, container));
      while (true) {
        MOED_ASSIGN_OR_RETURN(const auto next, iterator->Next(run));
        if (!next) return false;
        MOED_ASSIGN_OR_RETURN(const bool equal, AreEqual(run, *next, item));
        if (equal) return true;
      }
    }
    case Kind::kUndefined:
      return false;
    default:
      return InvalidArgument("argument of type '", TypeName(container), "' is not iterable");
  }
}

}  // namespace moed::chat
