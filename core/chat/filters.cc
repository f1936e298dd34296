#include "core/chat/filters.h"

#include <algorithm>

#include "core/base/status.h"
#include "core/chat/letter_case.h"
#include "core/chat/python_text.h"
#include "core/chat/run.h"
#include "core/chat/subscript.h"

namespace moed::chat {
namespace {

constexpr std::span<const Filter> (*kParts[])() = {TextFilters, NumberFilters, SequenceFilters, OrderFilters, LazyFilters};

}  // namespace

const Filter* FindFilter(std::string_view name) {
  for (const auto part : kParts) {
    for (const Filter& filter : part()) {
      if (filter.name == name) return &filter;
    }
  }
  return nullptr;
}

std::vector<std::string_view> FilterNames() {
  std::vector<std::string_view> names;
  for (const auto part : kParts) {
    for (const Filter& filter : part()) names.push_back(filter.name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<Value> ApplyFilter(Run& run, const Filter& filter, const Value& value, Call call) {
  MOED_RETURN_IF_ERROR(run.WorkOn(value.is(Kind::kText) ? value.text().size() : 0));
  MOED_ASSIGN_OR_RETURN(const Arguments arguments, Arguments::Bind(filter.name, filter.parameters, std::move(call)));
  return filter.run(run, value, arguments);
}

bool IsMissingFilter(std::string_view name) {
  constexpr std::string_view kMissing[] = {"filesizeformat", "pprint", "random",   "striptags",
                                           "urlencode",      "urlize", "wordwrap", "xmlattr"};
  return std::find(std::begin(kMissing), std::end(kMissing), name) != std::end(kMissing);
}

absl::StatusOr<Value> AttributeOf(Run& run, Value item, const Value* attribute, const Value* otherwise) {
  if (attribute == nullptr || attribute->is(Kind::kNone)) return item;
  std::vector<Value> keys = {*attribute};
  if (attribute->is(Kind::kText)) {
    keys.clear();
    for (const std::string_view part : SplitAt(attribute->text(), ".", kAllSplits, false)) {
      const auto number = IsDigit(part) ? ParseInteger(part, 10) : std::nullopt;
      MOED_ASSIGN_OR_RETURN(Value text, run.NewOwnText(part));
      keys.push_back(number ? Value(*number) : text);
    }
  }
  for (const Value& key : keys) {
    MOED_ASSIGN_OR_RETURN(item, Item(run, item, key));
    if (otherwise != nullptr && item.is(Kind::kUndefined)) item = *otherwise;
  }
  return item;
}

absl::StatusOr<Value> WithoutCase(Run& run, const Value& value) {
  if (!value.is(Kind::kText)) return value;
  return run.NewText(MarkedText::Whole(Lower(value.text()), HoldsForeign(value)));
}

}  // namespace moed::chat
