#include <algorithm>

#include "core/base/status.h"
#include "core/chat/arithmetic.h"
#include "core/chat/filters.h"
#include "core/chat/python_text.h"
#include "core/chat/run.h"
#include "core/chat/show.h"
#include "core/chat/subscript.h"
#include "core/tokenizer/unicode.h"

namespace moed::chat {
namespace {

absl::StatusOr<Value> Nothing(Run& run, const char* words) {
  return run.New<Undefined>(sizeof(Undefined), Undefined::Reason::kHint, words);
}

absl::StatusOr<Value> Length(Run&, const Value& value, const Arguments&) {
  switch (value.kind()) {
    case Kind::kText:
      return Value(static_cast<Integer>(value.as<Text>().characters));
    case Kind::kSequence:
      return Value(static_cast<Integer>(value.items().size()));
    case Kind::kDict:
      return Value(static_cast<Integer>(value.dict().entries().size()));
    case Kind::kUndefined:
      return Value(Integer{0});
    default:
      return InvalidArgument("object of type '", TypeName(value), "' has no len()");
  }
}

absl::StatusOr<Value> First(Run& run, const Value& value, const Arguments&) {
  MOED_ASSIGN_OR_RETURN(const auto iterator, Iterate(run, value));
  MOED_ASSIGN_OR_RETURN(const auto first, iterator->Next(run));
  if (!first) return Nothing(run, "No first item, sequence was empty.");
  return *first;
}

bool IsReversible(const Value& value) { return value.is(Kind::kText) || value.is(Kind::kDict) || value.is(Kind::kSequence); }

absl::StatusOr<Value> Last(Run& run, const Value& value, const Arguments&) {
  if (value.is(Kind::kUndefined)) return InvalidArgument(value.as<Undefined>().Words());
  if (!IsReversible(value)) return InvalidArgument("'", TypeName(value), "' object is not reversible");
  MOED_ASSIGN_OR_RETURN(const auto items, Elements(run, value));
  if (items.empty()) return Nothing(run, "No last item, sequence was empty.");
  return items.back();
}

absl::StatusOr<Value> List(Run& run, const Value& value, const Arguments&) {
  MOED_ASSIGN_OR_RETURN(auto items, Elements(run, value));
  return run.NewList(std::move(items));
}

class Once final : public Iterator {
 public:
  Once(Value items, std::string_view type_name) : Iterator(1 + DepthOf(items), type_name), items_(std::move(items)) {}
  absl::StatusOr<std::optional<Value>> Next(Run& run) override {
    MOED_RETURN_IF_ERROR(run.Work(1));
    if (at_ >= items_.items().size()) return std::nullopt;
    return items_.items()[at_++];
  }

 private:
  const Value items_;
  size_t at_ = 0;
};

absl::StatusOr<Value> Reverse(Run& run, const Value& value, const Arguments&) {
  if (value.is(Kind::kText)) return Slice(run, value, {std::nullopt, std::nullopt, Value(Integer{-1})});
  if (!IsIterable(value)) return InvalidArgument("argument must be iterable");
  MOED_ASSIGN_OR_RETURN(auto items, Elements(run, value));
  std::reverse(items.begin(), items.end());
  MOED_ASSIGN_OR_RETURN(Value reversed, run.NewList(std::move(items)));
  if (!IsReversible(value)) return reversed;
  return run.New<Once>(sizeof(Once), std::move(reversed), "list_reverseiterator");
}

absl::StatusOr<Value> Join(Run& run, const Value& value, const Arguments& arguments) {
  MarkedText separator;
  if (arguments.Find(0) != nullptr) {
    MOED_ASSIGN_OR_RETURN(separator, Str(run, arguments.at(0)));
  }
  MOED_ASSIGN_OR_RETURN(const auto iterator, Iterate(run, value));
  MarkedText out;
  for (bool first = true;; first = false) {
    MOED_ASSIGN_OR_RETURN(auto item, iterator->Next(run));
    if (!item) break;
    MOED_ASSIGN_OR_RETURN(const Value attribute, AttributeOf(run, *std::move(item), arguments.FindSome(1)));
    if (!first) out.Append(separator);
    MOED_RETURN_IF_ERROR(AppendStr(run, attribute, out));
  }
  return run.NewText(std::move(out));
}

absl::StatusOr<Value> Items(Run& run, const Value& value, const Arguments&) {
  std::vector<Value> pairs;
  if (!value.is(Kind::kUndefined)) {
    if (!value.is(Kind::kDict)) return InvalidArgument("Can only get item pairs from a mapping.");
    for (const auto& [key, item] : value.dict().entries()) {
      MOED_ASSIGN_OR_RETURN(Value pair, run.NewTuple({key, item}));
      pairs.push_back(std::move(pair));
    }
  }
  MOED_ASSIGN_OR_RETURN(Value list, run.NewList(std::move(pairs)));
  return run.New<Once>(sizeof(Once), std::move(list), "generator");
}

absl::StatusOr<Value> Sum(Run& run, const Value& value, const Arguments& arguments) {
  MOED_ASSIGN_OR_RETURN(const auto items, Elements(run, value));
  Value sum = arguments.Find(1) != nullptr ? arguments.at(1) : Value(Integer{0});
  if (sum.is(Kind::kText)) return InvalidArgument("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : items) {
    MOED_ASSIGN_OR_RETURN(const Value attribute, AttributeOf(run, item, arguments.FindSome(0)));
    MOED_ASSIGN_OR_RETURN(sum, Compute(run, Operator::kAdd, sum, attribute));
  }
  return sum;
}

absl::StatusOr<Value> ListOfLists(Run& run, std::vector<std::vector<Value>> lists) {
  std::vector<Value> values;
  for (auto& list : lists) {
    MOED_ASSIGN_OR_RETURN(Value value, run.NewList(std::move(list)));
    values.push_back(std::move(value));
  }
  MOED_ASSIGN_OR_RETURN(Value whole, run.NewList(std::move(values)));
  return run.New<Once>(sizeof(Once), std::move(whole), "generator");
}

absl::Status CheckCount(Run& run, Integer count) {
  return run.Fits(static_cast<size_t>(std::clamp<Integer>(count, 0, Integer{1} << 40)) * sizeof(Value));
}

absl::StatusOr<Value> Batch(Run& run, const Value& value, const Arguments& arguments) {
  MOED_ASSIGN_OR_RETURN(const Integer count, arguments.Whole(0));
  MOED_RETURN_IF_ERROR(CheckCount(run, count));
  MOED_ASSIGN_OR_RETURN(const auto items, Elements(run, value));
  std::vector<std::vector<Value>> batches;
  for (const Value& item : items) {
    if (batches.empty() || static_cast<Integer>(batches.back().size()) == count) batches.emplace_back();
    batches.back().push_back(item);
  }
  const Value* fill = arguments.FindSome(1);
  if (fill != nullptr && !batches.empty() && static_cast<Integer>(batches.back().size()) < count) {
    batches.back().resize(static_cast<size_t>(count), *fill);
  }
  return ListOfLists(run, std::move(batches));
}

absl::StatusOr<Value> SliceIntoColumns(Run& run, const Value& value, const Arguments& arguments) {
  MOED_ASSIGN_OR_RETURN(const Integer count, arguments.Whole(0));
  MOED_RETURN_IF_ERROR(CheckCount(run, count));
  MOED_ASSIGN_OR_RETURN(const auto items, Elements(run, value));
  if (count == 0) return InvalidArgument("integer division or modulo by zero");
  std::vector<std::vector<Value>> columns(static_cast<size_t>(std::max<Integer>(count, 0)));
  const Value* fill = arguments.FindSome(1);
  size_t next = 0;
  for (size_t i = 0; i < columns.size(); ++i) {
    const bool longer = i < items.size() % columns.size();
    for (size_t left = items.size() / columns.size() + (longer ? 1 : 0); left > 0; --left) columns[i].push_back(items[next++]);
    if (fill != nullptr && !longer) columns[i].push_back(*fill);
  }
  return ListOfLists(run, std::move(columns));
}

absl::StatusOr<Value> Attr(Run& run, const Value& value, const Arguments& arguments) {
  MOED_ASSIGN_OR_RETURN(const std::string name, arguments.Text(0));
  if (value.is(Kind::kDict) && value.dict().Find(name) != nullptr) {  // an item is no attribute
    return run.New<Undefined>(sizeof(Undefined), Undefined::Reason::kAttribute, name, "dict");
  }
  return Attribute(run, value, name);
}

constexpr Filter kFilters[] = {
    {"attr", "name", Attr},
    {"batch", "linecount fill_with?", Batch},
    {"count", "", Length},
    {"first", "", First},
    {"items", "", Items},
    {"join", "d? attribute?", Join},
    {"last", "", Last},
    {"length", "", Length},
    {"list", "", List},
    {"reverse", "", Reverse},
    {"slice", "slices fill_with?", SliceIntoColumns},
    {"sum", "attribute? start?", Sum},
};

}  // namespace

std::span<const Filter> SequenceFilters() { return kFilters; }

}  // namespace moed::chat
