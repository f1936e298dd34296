// Values of a template: Python's, as far as templates can make them. Texts, sequences and dicts are immutable and shared.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/chat/marked_text.h"

namespace moed::chat {

using Integer = __int128;  // an operation that leaves it is an error

enum class Kind : uint8_t {
  kNone,
  kBool,
  kInteger,
  kFloat,
  kText,
  kSequence,
  kDict,
  kUndefined,
  kNamespace,
  kIterator,
  kLoop,
  kFunction,
  kCycler,
};

// What takes memory: counts itself out of the account that it was counted into.
class Counted {
 public:
  Counted() = default;
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  virtual ~Counted() {
    if (account_ != nullptr) *account_ -= bytes_;
  }
  void CountInto(size_t& account, size_t bytes) {
    account_ = &account;
    bytes_ = bytes;
    account += bytes;
  }
  void CountMore(size_t bytes) {
    if (account_ == nullptr) return;
    bytes_ += bytes;
    *account_ += bytes;
  }
  // Lets go of what it refers to. Called at the end of a run for whatever may be part of a circle.
  virtual void Drop() {}

 private:
  size_t* account_ = nullptr;
  size_t bytes_ = 0;
};

// What lies behind a value that is more than a number.
class Object : public Counted {
 public:
  explicit Object(Kind kind) : kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  const Kind kind_;
};

class Text;
class Sequence;
class Dict;

class Value {
 public:
  Value() = default;  // None
  explicit Value(bool value) : data_(value) {}
  explicit Value(Integer value) : data_(value) {}
  explicit Value(double value) : data_(value) {}
  explicit Value(std::shared_ptr<Object> object) : data_(std::move(object)) {}
  template <class T>
  Value(T*) = delete;  // would be a bool

  Kind kind() const;
  bool is(Kind wanted) const { return kind() == wanted; }
  bool is_number() const { return data_.index() >= 1 && data_.index() <= 3; }
  bool is_whole() const { return data_.index() == 1 || data_.index() == 2; }  // a bool is one

  bool as_bool() const { return std::get<bool>(data_); }
  Integer as_integer() const;  // of a bool too
  double as_float() const;     // of any number
  const std::string& text() const;
  const std::vector<Value>& items() const;  // of a sequence
  const Dict& dict() const;

  template <class T>
  T& as() const {
    return static_cast<T&>(*std::get<std::shared_ptr<Object>>(data_));
  }
  const std::shared_ptr<Object>& object() const { return std::get<std::shared_ptr<Object>>(data_); }
  bool same_object(const Value& other) const;  // Python's "is"

 private:
  std::variant<std::monostate, bool, Integer, double, std::shared_ptr<Object>> data_;
};

// UTF-8, always valid. A text that is `markup` was declared safe for HTML and escapes what is joined to it.
class Text final : public Object {
 public:
  Text(MarkedText marked, size_t characters, bool markup)
      : Object(Kind::kText),
        text(std::move(marked.text)),
        foreign(std::move(marked.foreign)),
        characters(characters),
        markup(markup) {}
  bool ascii() const { return characters == text.size(); }
  const std::string text;
  const ByteRanges foreign;  // of text
  const size_t characters;
  const bool markup;
};

enum class Flavor : uint8_t { kList, kTuple, kRange, kKeys, kValues, kItems };

class Sequence final : public Object {
 public:
  Sequence(Flavor flavor, std::vector<Value> items, bool is_group = false);
  const Flavor flavor;
  const bool is_group;  // a tuple of groupby: its items are .grouper and .list
  const std::vector<Value> items;
  const int depth;  // of containers within each other; 1 for flat ones
};

// In the order in which keys came. Keys are equal as Python's are: 1, 1.0 and True are one key.
class Dict final : public Object {
 public:
  using Entry = std::pair<Value, Value>;
  explicit Dict(std::vector<Entry> entries);  // later entries of equal keys win
  const Value* Find(std::string_view key) const;
  const Value* Find(const Value& key) const;  // null for what is no key
  const std::vector<Entry>& entries() const { return entries_; }
  int depth() const { return depth_; }

 private:
  std::vector<Entry> entries_;
  absl::flat_hash_map<std::string_view, uint32_t> by_text_;  // filled when there are many
  int depth_ = 1;
};

// What was not there. Printed it is nothing; whatever else is done with it fails with the words of why it is not there.
class Undefined final : public Object {
 public:
  enum class Reason : uint8_t { kVariable, kAttribute, kElement, kHint, kUnsafe };
  Undefined(Reason reason, std::string name, std::string owner = "")
      : Object(Kind::kUndefined), reason(reason), name(std::move(name)), owner(std::move(owner)) {}
  std::string Words() const;
  const Reason reason;
  const std::string name;   // kElement: as Python's repr shows it; kHint: the words
  const std::string owner;  // the type of which it is no attribute or element
};

// What {% set ns.x = ... %} changes.
class Namespace final : public Object {
 public:
  Namespace() : Object(Kind::kNamespace) {}
  const Value* Find(std::string_view name) const;
  void Set(std::string_view name, Value value);
  void Drop() override { attributes.clear(); }
  std::vector<std::pair<std::string, Value>> attributes;
};

// Values that belong to no run: what a template is given, and its literals. `text` is valid UTF-8.
Value MakeText(std::string text);
Value MakeForeignText(std::string text);  // all of it is foreign (marked_text.h)
Value MakeList(std::vector<Value> items);
Value MakeDict(std::vector<Dict::Entry> entries);

// What they take at most, beside what they refer to: an element, while the list that it is put into grows.
inline constexpr size_t kBytesOfItem = 4 * sizeof(Value);
inline constexpr size_t kBytesOfContainer = 32 + (sizeof(Sequence) > sizeof(Dict) ? sizeof(Sequence) : sizeof(Dict));
size_t BytesOfText(const std::string& text);

// Whether a text in it is foreign in part. True of what is no number, text, sequence or dict: nobody knows.
bool HoldsForeign(const Value& value);

// Depth of containers in containers; 0 for what is none.
int DepthOf(const Value& value);

std::string_view TypeName(const Value& value);  // Python's: "str", "dict_items", "NoneType"
bool IsHashable(const Value& value);

}  // namespace moed::chat
