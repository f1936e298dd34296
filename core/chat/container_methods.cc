// Methods of dicts, sequences and loops, and of what the global functions make.
#include <algorithm>
#include <span>

#include "core/base/status.h"
#include "core/chat/cycler.h"
#include "core/chat/equality.h"
#include "core/chat/loop.h"
#include "core/chat/methods.h"
#include "core/chat/run.h"
#include "core/chat/show.h"

namespace moed::chat {
namespace {

absl::StatusOr<Value> Get(Run& run, const Value& self, const Arguments& arguments) {
  const Value& key = arguments.at(0);
  if (!IsHashable(key)) return InvalidArgument("unhashable type: '", TypeName(key), "'");
  MOED_RETURN_IF_ERROR(run.Work(key.is(Kind::kText) ? 1 : self.dict().entries().size()));
  const Value* found = self.dict().Find(key);
  const Value* otherwise = arguments.Find(1);
  return found != nullptr ? *found : otherwise != nullptr ? *otherwise : Value();
}

template <Flavor flavor>
absl::StatusOr<Value> View(Run& run, const Value& self, const Arguments&) {
  const auto& entries = self.dict().entries();
  MOED_RETURN_IF_ERROR(run.Fits(entries.size() * sizeof(Value)));
  std::vector<Value> items;
  items.reserve(entries.size());
  for (const auto& [key, value] : entries) {
    if (flavor == Flavor::kItems) {
      MOED_ASSIGN_OR_RETURN(Value pair, run.NewTuple({key, value}));
      items.push_back(std::move(pair));
    } else {
      items.push_back(flavor == Flavor::kKeys ? key : value);
    }
  }
  return run.NewSequence(flavor, std::move(items));
}

absl::StatusOr<Value> Copy(Run&, const Value& self, const Arguments&) { return self; }

absl::StatusOr<Value> Count(Run& run, const Value& self, const Arguments& arguments) {
  Integer count = 0;
  for (const Value& item : self.items()) {
    MOED_ASSIGN_OR_RETURN(const bool equal, AreEqual(run, item, arguments.at(0)));
    count += equal ? 1 : 0;
  }
  return Value(count);
}

absl::StatusOr<Value> Index(Run& run, const Value& self, const Arguments& arguments) {
  const auto size = static_cast<Integer>(self.items().size());
  MOED_ASSIGN_OR_RETURN(const Integer start, arguments.Whole(1, 0));
  MOED_ASSIGN_OR_RETURN(const Integer stop, arguments.Whole(2, size));
  const auto clamped = [size](Integer index) { return std::clamp<Integer>(index < 0 ? index + size : index, 0, size); };
  for (Integer i = clamped(start); i < clamped(stop); ++i) {
    MOED_ASSIGN_OR_RETURN(const bool equal, AreEqual(run, self.items()[static_cast<size_t>(i)], arguments.at(0)));
    if (equal) return Value(i);
  }
  MOED_ASSIGN_OR_RETURN(const std::string shown, Repr(run, arguments.at(0)));
  return InvalidArgument(shown, " is not in ", TypeName(self));
}

absl::StatusOr<Value> Cycle(Run&, const Value& self, const Arguments& arguments) {
  return self.as<Loop>().Cycle(arguments.call());
}

absl::StatusOr<Value> Changed(Run& run, const Value& self, const Arguments& arguments) {
  run.Keep(self.object());  // it may be given itself
  return self.as<Loop>().Changed(run, arguments.call());
}

absl::StatusOr<Value> NextOf(Run&, const Value& self, const Arguments&) {
  auto& cycler = self.as<Cycler>();
  const Value next = cycler.items[cycler.at];
  cycler.at = (cycler.at + 1) % cycler.items.size();
  return next;
}

absl::StatusOr<Value> Reset(Run&, const Value& self, const Arguments&) {
  self.as<Cycler>().at = 0;
  return Value();
}

constexpr Method kOfDicts[] = {
    {"copy", "", Copy},
    {"get", "key default?", Get},
    {"items", "", View<Flavor::kItems>},
    {"keys", "", View<Flavor::kKeys>},
    {"values", "", View<Flavor::kValues>},
};
constexpr Method kOfLists[] = {{"copy", "", Copy}, {"count", "value", Count}, {"index", "value start? stop?", Index}};
constexpr Method kOfTuples[] = {{"count", "value", Count}, {"index", "value start? stop?", Index}};
constexpr Method kOfLoops[] = {{"changed", "*", Changed}, {"cycle", "*", Cycle}};
constexpr Method kOfCyclers[] = {{"next", "", NextOf}, {"reset", "", Reset}};

std::span<const Method> MethodsOf(const Value& value) {
  switch (value.kind()) {
    case Kind::kDict:
      return kOfDicts;
    case Kind::kLoop:
      return kOfLoops;
    case Kind::kCycler:
      return kOfCyclers;
    case Kind::kSequence:
      break;
    default:
      return {};
  }
  const Flavor flavor = value.as<Sequence>().flavor;
  if (flavor == Flavor::kList) return kOfLists;
  if (flavor == Flavor::kTuple || flavor == Flavor::kRange) return kOfTuples;
  return {};
}

}  // namespace

const Method* FindContainerMethod(const Value& value, std::string_view name) {
  for (const Method& method : MethodsOf(value)) {
    if (method.name == name) return &method;
  }
  return nullptr;
}

absl::StatusOr<Value> Joiner::Invoke(Run& run, Call) {
  if (used_) return separator_;
  used_ = true;
  return run.NewOwnText("");
}

}  // namespace moed::chat
