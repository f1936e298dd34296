#include "core/chat/iterator.h"

#include "core/chat/error.h"
#include "core/chat/run.h"
#include "core/tokenizer/unicode.h"

namespace moed::chat {
namespace {

class ItemsIterator final : public Iterator {
 public:
  explicit ItemsIterator(Value sequence) : Iterator(DepthOf(sequence) + 1, "list_iterator"), sequence_(std::move(sequence)) {}
  absl::StatusOr<std::optional<Value>> Next(Run& run) override {
    MOED_RETURN_IF_ERROR(run.Work(1));
    if (at_ >= sequence_.items().size()) return std::nullopt;
    return sequence_.items()[at_++];
  }

 private:
  const Value sequence_;
  size_t at_ = 0;
};

class KeysIterator final : public Iterator {
 public:
  explicit KeysIterator(Value dict) : Iterator(DepthOf(dict) + 1, "dict_keyiterator"), dict_(std::move(dict)) {}
  absl::StatusOr<std::optional<Value>> Next(Run& run) override {
    MOED_RETURN_IF_ERROR(run.Work(1));
    if (at_ >= dict_.dict().entries().size()) return std::nullopt;
    return dict_.dict().entries()[at_++].first;
  }

 private:
  const Value dict_;
  size_t at_ = 0;
};

class CharactersIterator final : public Iterator {
 public:
  explicit CharactersIterator(Value text) : Iterator(1, "str_iterator"), text_(std::move(text)) {}
  absl::StatusOr<std::optional<Value>> Next(Run& run) override {
    MOED_RETURN_IF_ERROR(run.Work(1));
    const std::string_view left = std::string_view(text_.text()).substr(at_);
    if (left.empty()) return std::nullopt;
    const size_t bytes = FirstCharacterBytes(left);
    at_ += bytes;
    MOED_ASSIGN_OR_RETURN(Value character, run.NewText(MarkedText::PartOf(text_.as<Text>(), left.substr(0, bytes))));
    return character;
  }

 private:
  const Value text_;
  size_t at_ = 0;
};

class EmptyIterator final : public Iterator {
 public:
  EmptyIterator() : Iterator(1) {}
  absl::StatusOr<std::optional<Value>> Next(Run&) override { return std::nullopt; }
};

template <class T>
absl::StatusOr<std::shared_ptr<Iterator>> Over(Run& run, const Value& value) {
  MOED_ASSIGN_OR_RETURN(auto iterator, run.Make<T>(sizeof(T), value));
  return std::shared_ptr<Iterator>(std::move(iterator));
}

}  // namespace

absl::StatusOr<std::shared_ptr<Iterator>> Iterate(Run& run, const Value& value) {
  switch (value.kind()) {
    case Kind::kSequence:
      return Over<ItemsIterator>(run, value);
    case Kind::kDict:
      return Over<KeysIterator>(run, value);
    case Kind::kText:
      return Over<CharactersIterator>(run, value);
    case Kind::kUndefined:
      return std::shared_ptr<Iterator>(std::make_shared<EmptyIterator>());
    case Kind::kIterator:
      return std::static_pointer_cast<Iterator>(value.object());
    default:
      return InvalidArgument("'", TypeName(value), "' object is not iterable");
  }
}

absl::StatusOr<std::vector<Value>> Elements(Run& run, const Value& value) {
  if (value.is(Kind::kSequence)) {
    MOED_RETURN_IF_ERROR(run.Work(value.items().size()));
    MOED_RETURN_IF_ERROR(run.Fits(value.items().size() * sizeof(Value)));
    return value.items();
  }
  MOED_ASSIGN_OR_RETURN(const auto iterator, Iterate(run, value));
  std::vector<Value> elements;
  while (true) {
    MOED_ASSIGN_OR_RETURN(auto next, iterator->Next(run));
    if (!next) return elements;
    elements.push_back(*std::move(next));
    MOED_RETURN_IF_ERROR(run.Fits(elements.size() * sizeof(Value)));
  }
}

bool IsIterable(const Value& value) {
  switch (value.kind()) {
    case Kind::kSequence:
    case Kind::kDict:
    case Kind::kText:
    case Kind::kUndefined:
    case Kind::kIterator:
      return true;
    default:
      return false;
  }
}

}  // namespace moed::chat
