#include <algorithm>
#include <numeric>

#include "core/base/status.h"
#include "core/chat/equality.h"
#include "core/chat/filters.h"
#include "core/chat/python_text.h"
#include "core/chat/run.h"

namespace moed::chat {
namespace {

// The order of items by their keys, stable, as Python's sorted; reversed, equal ones keep their order.
absl::StatusOr<std::vector<size_t>> OrderOf(Run& run, const std::vector<Value>& keys, bool reversed) {
  std::vector<size_t> order(keys.size());
  std::iota(order.begin(), order.end(), size_t{0});
  absl::Status status;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (!status.ok()) return false;
    const auto less = reversed ? IsLess(run, keys[b], keys[a]) : IsLess(run, keys[a], keys[b]);
    if (!less.ok()) status = less.status();
    return less.ok() && *less;
  });
  if (status.ok()) return order;
  // Which pair fails first is this sort's choice; Python compares each item with the one before it.
  for (size_t i = 1; i < keys.size(); ++i) {
    MOED_RETURN_IF_ERROR(IsLess(run, keys[i], keys[i - 1]).status());
  }
  return status;
}

absl::StatusOr<Value> Ordered(Run& run, const std::vector<Value>& items, const std::vector<Value>& keys, bool reversed) {
  MOED_ASSIGN_OR_RETURN(const auto order, OrderOf(run, keys, reversed));
  std::vector<Value> ordered;
  ordered.reserve(items.size());
  for (const size_t i : order) ordered.push_back(items[i]);
  return run.NewList(std::move(ordered));
}

absl::StatusOr<Value> KeyOf(Run& run, const Value& item, const Value* attribute, bool case_sensitive) {
  MOED_ASSIGN_OR_RETURN(const Value key, AttributeOf(run, item, attribute));
  if (case_sensitive) return key;
  return WithoutCase(run, key);
}

// "a,b": by the first, then by the second.
absl::StatusOr<Value> KeysOf(Run& run, const Value& item, const Value* attribute, bool case_sensitive) {
  if (attribute == nullptr || !attribute->is(Kind::kText)) return KeyOf(run, item, attribute, case_sensitive);
  std::vector<Value> keys;
  for (const std::string_view part : SplitAt(attribute->text(), ",", kAllSplits, false)) {
    MOED_ASSIGN_OR_RETURN(const Value name, run.NewOwnText(part));
    MOED_ASSIGN_OR_RETURN(Value key, KeyOf(run, item, &name, case_sensitive));
    keys.push_back(std::move(key));
  }
  return run.NewList(std::move(keys));
}

absl::StatusOr<Value> Sort(Run& run, const Value& value, const Arguments& arguments) {
  MOED_ASSIGN_OR_RETURN(const auto items, Elements(run, value));
  std::vector<Value> keys;
  for (const Value& item : items) {
    MOED_ASSIGN_OR_RETURN(Value key, KeysOf(run, item, arguments.FindSome(2), arguments.True(1)));
    keys.push_back(std::move(key));
  }
  return Ordered(run, items, keys, arguments.True(0));
}

absl::StatusOr<Value> DictSort(Run& run, const Value& value, const Arguments& arguments) {
  MOED_ASSIGN_OR_RETURN(const std::string by, arguments.Text(1, "key"));
  if (by != "key" && by != "value") return InvalidArgument("You can only sort by either \"key\" or \"value\"");
  if (value.is(Kind::kUndefined)) return InvalidArgument(value.as<Undefined>().Words());
  if (!value.is(Kind::kDict)) return InvalidArgument("'", TypeName(value), "' object has no attribute 'items'");
  std::vector<Value> items, keys;
  for (const auto& [name, item] : value.dict().entries()) {
    MOED_ASSIGN_OR_RETURN(Value pair, run.NewTuple({name, item}));
    items.push_back(std::move(pair));
    const Value& key = by == "key" ? name : item;
    keys.push_back(key);
    if (!arguments.True(0)) {
      MOED_ASSIGN_OR_RETURN(keys.back(), WithoutCase(run, key));
    }
  }
  return Ordered(run, items, keys, arguments.True(2));
}

template <bool greatest>
absl::StatusOr<Value> Extreme(Run& run, const Value& value, const Arguments& arguments) {
  MOED_ASSIGN_OR_RETURN(const auto items, Elements(run, value));
  if (items.empty()) {
    return run.New<Undefined>(sizeof(Undefined), Undefined::Reason::kHint, "No aggregated item, sequence was empty.");
  }
  size_t best = 0;
  Value best_key;
  for (size_t i = 0; i < items.size(); ++i) {
    MOED_ASSIGN_OR_RETURN(Value key, KeyOf(run, items[i], arguments.FindSome(1), arguments.True(0)));
    bool better = i == 0;
    if (i > 0) {
      MOED_ASSIGN_OR_RETURN(better, InOrder(run, greatest ? Order::kGreater : Order::kLess, key, best_key));
    }
    if (!better) continue;
    best = i;
    best_key = std::move(key);
  }
  return items[best];
}

// Named by the first item's attribute, in its own case.
absl::StatusOr<Value> Group(Run& run, std::vector<Value> items, const Value& attribute, const Value* otherwise) {
  MOED_ASSIGN_OR_RETURN(Value name, AttributeOf(run, items[0], &attribute, otherwise));
  MOED_ASSIGN_OR_RETURN(Value list, run.NewList(std::move(items)));
  std::vector<Value> pair = {std::move(name), std::move(list)};
  return run.New<Sequence>(sizeof(Sequence) + 2 * sizeof(Value), Flavor::kTuple, std::move(pair), /*is_group=*/true);
}

absl::StatusOr<Value> GroupBy(Run& run, const Value& value, const Arguments& arguments) {
  MOED_ASSIGN_OR_RETURN(const auto items, Elements(run, value));
  const Value& attribute = arguments.at(0);
  const Value* otherwise = arguments.FindSome(1);
  std::vector<Value> keys;
  for (const Value& item : items) {
    MOED_ASSIGN_OR_RETURN(Value key, AttributeOf(run, item, &attribute, otherwise));
    if (!arguments.True(2)) {
      MOED_ASSIGN_OR_RETURN(key, WithoutCase(run, key));
    }
    keys.push_back(std::move(key));
  }
  MOED_ASSIGN_OR_RETURN(const auto order, OrderOf(run, keys, false));
  std::vector<Value> groups, group;
  for (size_t i = 0; i < order.size(); ++i) {
    group.push_back(items[order[i]]);
    bool goes_on = i + 1 < order.size();
    if (goes_on) {
      MOED_ASSIGN_OR_RETURN(goes_on, AreEqual(run, keys[order[i]], keys[order[i + 1]]));
    }
    if (goes_on) continue;
    MOED_ASSIGN_OR_RETURN(Value pair, Group(run, std::exchange(group, {}), attribute, otherwise));
    groups.push_back(std::move(pair));
  }
  return run.NewList(std::move(groups));
}

constexpr Filter kFilters[] = {
    {"dictsort", "case_sensitive? by? reverse?", DictSort}, {"groupby", "attribute default? case_sensitive?", GroupBy},
    {"max", "case_sensitive? attribute?", Extreme<true>},   {"min", "case_sensitive? attribute?", Extreme<false>},
    {"sort", "reverse? case_sensitive? attribute?", Sort},
};

}  // namespace

std::span<const Filter> OrderFilters() { return kFilters; }

}  // namespace moed::chat
