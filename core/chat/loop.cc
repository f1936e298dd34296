#include "core/chat/loop.h"

#include "core/base/status.h"
#include "core/chat/equality.h"
#include "core/chat/run.h"

namespace moed::chat {
namespace {

Value Number(int64_t number) { return Value(Integer{number}); }

absl::StatusOr<Value> NoItem(Run& run, const char* words) {
  return run.New<Undefined>(sizeof(Undefined), Undefined::Reason::kHint, words);
}

}  // namespace

absl::StatusOr<std::optional<Value>> Loop::Next(Run& run) {
  std::optional<Value> next = std::exchange(after_, std::nullopt);
  if (!next) {
    MOED_ASSIGN_OR_RETURN(next, items_->Next(run));
  }
  if (!next) return std::nullopt;
  ++index0_;
  before_ = std::exchange(current_, next);
  return next;
}

absl::StatusOr<bool> Loop::HasNext(Run& run) {
  if (!after_) {
    MOED_ASSIGN_OR_RETURN(after_, items_->Next(run));
  }
  return after_.has_value();
}

absl::StatusOr<int64_t> Loop::Length(Run& run) {
  if (length_) return *length_;
  switch (iterated_.kind()) {
    case Kind::kSequence:
      length_ = static_cast<int64_t>(iterated_.items().size());
      break;
    case Kind::kDict:
      length_ = static_cast<int64_t>(iterated_.dict().entries().size());
      break;
    case Kind::kText:
      length_ = static_cast<int64_t>(iterated_.as<Text>().characters);
      break;
    case Kind::kUndefined:
      length_ = 0;
      break;
    default: {
      MOED_ASSIGN_OR_RETURN(std::vector<Value> rest, Elements(run, Value(std::shared_ptr<Object>(items_))));
      length_ = static_cast<int64_t>(rest.size()) + index0_ + 1 + (after_ ? 1 : 0);
      MOED_ASSIGN_OR_RETURN(const Value list, run.NewList(std::move(rest)));
      MOED_ASSIGN_OR_RETURN(items_, Iterate(run, list));
    }
  }
  return *length_;
}

absl::StatusOr<std::optional<Value>> Loop::Attribute(Run& run, std::string_view name) {
  if (name == "index") return Number(index0_ + 1);
  if (name == "index0") return Number(index0_);
  if (name == "first") return Value(index0_ == 0);
  if (name == "depth") return Number(depth_ + 1);
  if (name == "depth0") return Number(depth_);
  if (name == "last") {
    MOED_ASSIGN_OR_RETURN(const bool more, HasNext(run));
    return Value(!more);
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    MOED_ASSIGN_OR_RETURN(const int64_t length, Length(run));
    return Number(name == "length" ? length : length - index0_ - (name == "revindex0" ? 1 : 0));
  }
  if (name == "previtem") {
    if (index0_ > 0) return before_;
    return NoItem(run, "there is no previous item");
  }
  if (name == "nextitem") {
    MOED_ASSIGN_OR_RETURN(const bool more, HasNext(run));
    if (more) return after_;
    return NoItem(run, "there is no next item");
  }
  return std::nullopt;
}

absl::StatusOr<Value> Loop::Cycle(const Call& call) const {
  if (call.positional.empty()) return InvalidArgument("no items for cycling given");
  return call.positional[static_cast<size_t>(index0_) % call.positional.size()];
}

absl::StatusOr<Value> Loop::Changed(Run& run, Call call) {
  bool same = last_changed_ && last_changed_->size() == call.positional.size();
  for (size_t i = 0; same && i < call.positional.size(); ++i) {
    MOED_ASSIGN_OR_RETURN(same, AreEqual(run, (*last_changed_)[i], call.positional[i]));
  }
  if (!same) last_changed_ = std::move(call.positional);
  return Value(!same);
}

std::string Loop::Shown() const { return StrCat("<LoopContext ", index0_ + 1, "/", length_.value_or(index0_ + 1), ">"); }

}  // namespace moed::chat
