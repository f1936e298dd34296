#include "core/chat/value.h"

#include <algorithm>
#include <utility>

#include "core/base/status.h"
#include "core/chat/equality.h"
#include "core/chat/iterator.h"
#include "core/chat/python_text.h"

namespace moed::chat {
namespace {

constexpr size_t kManyKeys = 12;  // from here on they are looked up by hash

int DeepestOf(const std::vector<Value>& items) {
  int deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, DepthOf(item));
  return deepest;
}

Value Made(MarkedText text) {
  const size_t characters = CountCharacters(text.text);
  return Value(std::make_shared<Text>(std::move(text), characters, false));
}

}  // namespace

Kind Value::kind() const {
  constexpr Kind kPlain[] = {Kind::kNone, Kind::kBool, Kind::kInteger, Kind::kFloat};
  return data_.index() < std::size(kPlain) ? kPlain[data_.index()] : object()->kind();
}

Integer Value::as_integer() const { return is(Kind::kBool) ? Integer{as_bool()} : std::get<Integer>(data_); }

double Value::as_float() const { return is(Kind::kFloat) ? std::get<double>(data_) : static_cast<double>(as_integer()); }

const std::string& Value::text() const { return as<Text>().text; }
const std::vector<Value>& Value::items() const { return as<Sequence>().items; }
const Dict& Value::dict() const { return as<Dict>(); }

bool Value::same_object(const Value& other) const {
  if (kind() != other.kind()) return false;
  if (data_.index() < 4) return data_ == other.data_;
  return object() == other.object();
}

Sequence::Sequence(Flavor flavor, std::vector<Value> elements, bool is_group)
    : Object(Kind::kSequence), flavor(flavor), is_group(is_group), items(std::move(elements)), depth(1 + DeepestOf(items)) {}

Dict::Dict(std::vector<Entry> entries) : Object(Kind::kDict) {
  const bool many = entries.size() >= kManyKeys;
  entries_.reserve(entries.size());
  for (Entry& entry : entries) {
    depth_ = std::max(depth_, 1 + std::max(DepthOf(entry.first), DepthOf(entry.second)));
    if (const Value* known = Find(entry.first)) {
      const_cast<Value&>(*known) = std::move(entry.second);
      continue;
    }
    entries_.push_back(std::move(entry));
    const Value& key = entries_.back().first;
    if (many && key.is(Kind::kText)) by_text_.emplace(key.text(), static_cast<uint32_t>(entries_.size() - 1));
  }
}

const Value* Dict::Find(std::string_view key) const {
  if (!by_text_.empty()) {
    const auto found = by_text_.find(key);
    return found == by_text_.end() ? nullptr : &entries_[found->second].second;
  }
  for (const auto& [own, value] : entries_) {
    if (own.is(Kind::kText) && own.text() == key) return &value;
  }
  return nullptr;
}

const Value* Dict::Find(const Value& key) const {
  if (key.is(Kind::kText)) return Find(std::string_view(key.text()));
  for (const auto& [own, value] : entries_) {
    if (AreEqual(own, key)) return &value;
  }
  return nullptr;
}

std::string Undefined::Words() const {
  switch (reason) {
    case Reason::kVariable:
      return StrCat(QuotedText(name), " is undefined");
    case Reason::kAttribute:
      return StrCat(QuotedText(owner == "NoneType" ? "None" : owner + " object"), " has no attribute ", QuotedText(name));
    case Reason::kElement:
      return StrCat(owner == "NoneType" ? "None" : owner + " object", " has no element ", name);
    case Reason::kUnsafe:
      return StrCat("access to attribute ", QuotedText(name), " of ", QuotedText(owner), " object is unsafe.");
    case Reason::kHint:
      break;
  }
  return name;
}

const Value* Namespace::Find(std::string_view name) const {
  for (const auto& [own, value] : attributes) {
    if (own == name) return &value;
  }
  return nullptr;
}

void Namespace::Set(std::string_view name, Value value) {
  if (const Value* known = Find(name)) {
    const_cast<Value&>(*known) = std::move(value);
  } else {
    attributes.emplace_back(name, std::move(value));
    CountMore(sizeof(attributes[0]) + name.size());
  }
}

Value MakeText(std::string text) { return Made(MarkedText::Own(std::move(text))); }
Value MakeForeignText(std::string text) { return Made(MarkedText::Whole(std::move(text), true)); }
Value MakeList(std::vector<Value> items) { return Value(std::make_shared<Sequence>(Flavor::kList, std::move(items))); }
Value MakeDict(std::vector<Dict::Entry> entries) { return Value(std::make_shared<Dict>(std::move(entries))); }

size_t BytesOfText(const std::string& text) { return 32 + sizeof(Text) + sizeof(ByteRange) + text.size(); }

bool HoldsForeign(const Value& value) {
  switch (value.kind()) {
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInteger:
    case Kind::kFloat:
    case Kind::kUndefined:
      return false;
    case Kind::kText:
      return !value.as<Text>().foreign.empty();
    case Kind::kSequence:
      return std::ranges::any_of(value.items(), HoldsForeign);
    case Kind::kDict:
      return std::ranges::any_of(value.dict().entries(), [](const Dict::Entry& entry) {
        return HoldsForeign(entry.first) || HoldsForeign(entry.second);
      });
    default:
      return true;
  }
}

int DepthOf(const Value& value) {
  switch (value.kind()) {
    case Kind::kSequence:
      return value.as<Sequence>().depth;
    case Kind::kDict:
      return value.dict().depth();
    case Kind::kIterator:
      return value.as<Iterator>().depth();
    default:
      return 0;
  }
}

std::string_view TypeName(const Value& value) {
  constexpr std::string_view kOfKind[] = {"NoneType",  "bool",      "int",       "float",       "str",      "list",  "dict",
                                          "Undefined", "namespace", "generator", "LoopContext", "function", "Cycler"};
  constexpr std::string_view kOfFlavor[] = {"list", "tuple", "range", "dict_keys", "dict_values", "dict_items"};
  if (value.is(Kind::kText) && value.as<Text>().markup) return "Markup";
  if (value.is(Kind::kSequence)) return kOfFlavor[static_cast<int>(value.as<Sequence>().flavor)];
  if (value.is(Kind::kIterator)) return value.as<Iterator>().type_name();
  if (value.is(Kind::kFunction)) return value.as<Function>().type_name();
  return kOfKind[static_cast<int>(value.kind())];
}

bool IsHashable(const Value& value) {
  if (value.is(Kind::kDict)) return false;
  if (!value.is(Kind::kSequence)) return true;
  const Sequence& sequence = value.as<Sequence>();
  if (sequence.flavor == Flavor::kTuple) return std::all_of(sequence.items.begin(), sequence.items.end(), IsHashable);
  return sequence.flavor == Flavor::kRange;
}

}  // namespace moed::chat
