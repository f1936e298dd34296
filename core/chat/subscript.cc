#include "core/chat/subscript.h"

#include <algorithm>

#include "core/base/status.h"
#include "core/chat/cycler.h"
#include "core/chat/iterator.h"
#include "core/chat/loop.h"
#include "core/chat/methods.h"
#include "core/chat/python_text.h"
#include "core/chat/run.h"
#include "core/chat/show.h"
#include "core/tokenizer/unicode.h"

namespace moed::chat {
namespace {

using Reason = Undefined::Reason;

absl::StatusOr<Value> NewUndefined(Run& run, Reason reason, std::string name, std::string_view owner) {
  return run.New<Undefined>(sizeof(Undefined) + name.size(), reason, std::move(name), std::string(owner));
}

bool IsPrivate(std::string_view name) { return !name.empty() && name[0] == '_'; }

// Python's numbers are complex ones and, where they are whole, fractions.
std::optional<Value> PartOfNumber(const Value& value, std::string_view name) {
  const bool whole = value.is_whole();
  if (name == "real" || (whole && name == "numerator")) return whole ? Value(value.as_integer()) : value;
  if (name == "imag") return whole ? Value(Integer{0}) : Value(0.0);
  if (whole && name == "denominator") return Value(Integer{1});
  return std::nullopt;
}

// What Python's getattr finds; nullopt where it finds nothing.
absl::StatusOr<std::optional<Value>> OwnAttribute(Run& run, const Value& value, std::string_view name) {
  switch (value.kind()) {
    case Kind::kBool:
    case Kind::kInteger:
    case Kind::kFloat:
      if (auto part = PartOfNumber(value, name)) return part;
      break;
    case Kind::kSequence:
      if (!value.as<Sequence>().is_group) break;
      if (name == "grouper") return value.items()[0];
      if (name == "list") return value.items()[1];
      break;
    case Kind::kFunction: {
      MOED_ASSIGN_OR_RETURN(auto found, value.as<Function>().Attribute(run, name));
      if (found) return found;
      break;
    }
    case Kind::kNamespace: {
      const Value* found = value.as<Namespace>().Find(name);
      return found != nullptr ? std::optional(*found) : std::nullopt;
    }
    case Kind::kLoop: {
      MOED_ASSIGN_OR_RETURN(auto found, value.as<Loop>().Attribute(run, name));
      if (found) return found;
      break;
    }
    case Kind::kCycler:
      if (name == "current") return value.as<Cycler>().items[value.as<Cycler>().at];
      break;
    default:
      break;
  }
  const bool dunder = name.size() > 4 && name.substr(0, 2) == "__" && name.substr(name.size() - 2) == "__";
  if (dunder || IsUnsafeMethod(value, name)) {
    MOED_ASSIGN_OR_RETURN(Value unsafe, NewUndefined(run, Reason::kUnsafe, std::string(name), TypeName(value)));
    return unsafe;
  }
  return MethodOf(run, value, name);
}

// Of what can be indexed by numbers; nullopt where that number is not there.
absl::StatusOr<std::optional<Value>> NumberedItem(Run& run, const Value& value, Integer index) {
  const bool is_text = value.is(Kind::kText);
  const auto size = static_cast<Integer>(is_text ? value.as<Text>().characters : value.items().size());
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::nullopt;
  const auto at = static_cast<size_t>(index);
  if (!is_text) return value.items()[at];
  const Text& text = value.as<Text>();
  MOED_RETURN_IF_ERROR(run.WorkOn(text.ascii() ? 0 : text.text.size()));
  const std::string_view rest = std::string_view(text.text).substr(text.ascii() ? at : OffsetOf(text.text, at));
  MOED_ASSIGN_OR_RETURN(Value character,
                        run.NewText(MarkedText::PartOf(text, rest.substr(0, FirstCharacterBytes(rest))), text.markup));
  return character;
}

absl::StatusOr<std::optional<Value>> OwnItem(Run& run, const Value& value, const Value& key) {
  if (value.is(Kind::kDict)) {
    MOED_RETURN_IF_ERROR(run.Work(key.is(Kind::kText) ? 1 : value.dict().entries().size()));
    const Value* found = value.dict().Find(key);
    return found != nullptr ? std::optional(*found) : std::nullopt;
  }
  const bool numbered = value.is(Kind::kText) || (value.is(Kind::kSequence) && value.as<Sequence>().flavor <= Flavor::kRange);
  if (numbered && key.is_whole()) return NumberedItem(run, value, key.as_integer());
  return std::nullopt;
}

struct Bounds {
  Integer start, stop, step;
  size_t count;
};

absl::StatusOr<Integer> Bound(const Value& value) {
  if (value.is_whole()) return value.as_integer();
  return InvalidArgument("slice indices must be integers or None or have an __index__ method");
}

// As Python's slice.indices.
absl::StatusOr<Bounds> BoundsOf(const SliceBounds& asked, Integer size) {
  const auto given = [](const std::optional<Value>& bound) { return bound && !bound->is(Kind::kNone); };
  Bounds bounds{0, 0, 1, 0};
  if (given(asked.step)) {
    MOED_ASSIGN_OR_RETURN(bounds.step, Bound(*asked.step));
  }
  if (bounds.step == 0) return InvalidArgument("slice step cannot be zero");
  const bool backwards = bounds.step < 0;
  const Integer least = backwards ? -1 : 0, most = backwards ? size - 1 : size;
  const auto clamped = [&](Integer bound) {
    return std::clamp(bound < 0 ? std::max(bound, -size - 1) + size : bound, least, most);
  };
  bounds.start = backwards ? most : least;
  bounds.stop = backwards ? least : most;
  if (given(asked.start)) {
    MOED_ASSIGN_OR_RETURN(const Integer start, Bound(*asked.start));
    bounds.start = clamped(start);
  }
  if (given(asked.stop)) {
    MOED_ASSIGN_OR_RETURN(const Integer stop, Bound(*asked.stop));
    bounds.stop = clamped(stop);
  }
  const Integer distance = backwards ? bounds.start - bounds.stop : bounds.stop - bounds.start;
  bounds.step = std::clamp(bounds.step, -size - 1, size + 1);
  const Integer stride = backwards ? -bounds.step : bounds.step;
  if (distance > 0) bounds.count = static_cast<size_t>((distance - 1) / stride + 1);
  return bounds;
}

absl::StatusOr<Value> SliceText(Run& run, const Text& text, const Bounds& bounds) {
  MOED_RETURN_IF_ERROR(run.WorkOn(text.text.size()));
  const std::string_view whole = text.text;
  if (bounds.step == 1) {
    const auto start = static_cast<size_t>(bounds.start);
    const size_t begin = text.ascii() ? start : OffsetOf(whole, start);
    const std::string_view rest = whole.substr(std::min(begin, whole.size()));
    const std::string_view part = rest.substr(0, text.ascii() ? bounds.count : OffsetOf(rest, bounds.count));
    return run.NewText(MarkedText::PartOf(text, part), text.markup);
  }
  std::vector<size_t> begins;
  for (size_t at = 0; at < whole.size(); at += FirstCharacterBytes(whole.substr(at))) begins.push_back(at);
  MarkedText out;
  Integer at = bounds.start;
  for (size_t i = 0; i < bounds.count; ++i, at += bounds.step) {
    const std::string_view rest = whole.substr(begins[static_cast<size_t>(at)]);
    out.AppendPart(text, rest.substr(0, FirstCharacterBytes(rest)));
  }
  return run.NewText(std::move(out), text.markup);
}

}  // namespace

absl::StatusOr<Value> Attribute(Run& run, const Value& value, std::string_view name) {
  if (value.is(Kind::kUndefined)) return InvalidArgument(value.as<Undefined>().Words());
  MOED_ASSIGN_OR_RETURN(auto found, OwnAttribute(run, value, name));
  if (!found && value.is(Kind::kDict)) {
    const Value* item = value.dict().Find(name);
    if (item != nullptr) return *item;
  }
  if (!found) return NewUndefined(run, Reason::kAttribute, std::string(name), TypeName(value));
  if (IsPrivate(name)) return NewUndefined(run, Reason::kUnsafe, std::string(name), TypeName(value));
  return *std::move(found);
}

absl::StatusOr<Value> Item(Run& run, const Value& value, const Value& key) {
  if (value.is(Kind::kUndefined)) return InvalidArgument(value.as<Undefined>().Words());
  MOED_ASSIGN_OR_RETURN(auto found, OwnItem(run, value, key));
  if (found) return *std::move(found);
  if (!key.is(Kind::kText)) {
    MOED_ASSIGN_OR_RETURN(std::string shown, Repr(run, key));
    return NewUndefined(run, Reason::kElement, std::move(shown), TypeName(value));
  }
  MOED_ASSIGN_OR_RETURN(found, OwnAttribute(run, value, key.text()));
  if (!found) return NewUndefined(run, Reason::kAttribute, key.text(), TypeName(value));
  if (IsPrivate(key.text())) return NewUndefined(run, Reason::kUnsafe, key.text(), TypeName(value));
  return *std::move(found);
}

absl::StatusOr<Value> Slice(Run& run, const Value& value, const SliceBounds& asked) {
  if (value.is(Kind::kUndefined)) return InvalidArgument(value.as<Undefined>().Words());
  if (value.is(Kind::kDict)) return InvalidArgument("unhashable type: 'slice'");
  const bool sliced = value.is(Kind::kText) || (value.is(Kind::kSequence) && value.as<Sequence>().flavor <= Flavor::kRange);
  if (!sliced) return InvalidArgument("'", TypeName(value), "' object is not subscriptable");
  const size_t size = value.is(Kind::kText) ? value.as<Text>().characters : value.items().size();
  MOED_ASSIGN_OR_RETURN(const Bounds bounds, BoundsOf(asked, static_cast<Integer>(size)));
  if (value.is(Kind::kText)) return SliceText(run, value.as<Text>(), bounds);
  MOED_RETURN_IF_ERROR(run.Fits(bounds.count * sizeof(Value)));
  std::vector<Value> items;
  items.reserve(bounds.count);
  Integer at = bounds.start;
  for (size_t i = 0; i < bounds.count; ++i, at += bounds.step) items.push_back(value.items()[static_cast<size_t>(at)]);
  return run.NewSequence(value.as<Sequence>().flavor, std::move(items));
}

}  // namespace moed::chat
