#include "core/chat/functions.h"

#include <algorithm>
#include <iterator>

#include "core/base/status.h"
#include "core/chat/cycler.h"
#include "core/chat/error.h"
#include "core/chat/python_text.h"
#include "core/chat/run.h"
#include "core/chat/show.h"

namespace moed::chat {
namespace {

constexpr Integer kMostOfRange = 100'000;  // as Jinja's sandbox has it

absl::StatusOr<Value> Range(Run& run, const Arguments& arguments) {
  Integer start = 0, step = 1;
  MOED_ASSIGN_OR_RETURN(Integer stop, arguments.Whole(0));
  if (arguments.Find(1) != nullptr) {
    start = stop;
    MOED_ASSIGN_OR_RETURN(stop, arguments.Whole(1));
    MOED_ASSIGN_OR_RETURN(step, arguments.Whole(2, 1));
  }
  if (step == 0) return InvalidArgument("range() arg 3 must not be zero");
  constexpr Integer kFarthest = Integer{1} << 100;
  if (std::max({start, stop, step}) > kFarthest || std::min({start, stop, step}) < -kFarthest) {
    return InvalidArgument("the chat template computes with a number of more than 127 bits");
  }
  const Integer distance = step > 0 ? stop - start : start - stop;
  const Integer count = distance <= 0 ? 0 : (distance - 1) / (step > 0 ? step : -step) + 1;
  if (count > kMostOfRange) {
    return InvalidArgument("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  }
  std::vector<Value> numbers;
  MOED_RETURN_IF_ERROR(run.Fits(static_cast<size_t>(count) * sizeof(Value)));
  numbers.reserve(static_cast<size_t>(count));
  for (Integer i = 0; i < count; ++i) numbers.emplace_back(start + i * step);
  return run.NewSequence(Flavor::kRange, std::move(numbers));
}

absl::Status AppendPairs(Run& run, const Value& from, std::vector<Dict::Entry>& entries) {
  if (from.is(Kind::kDict)) {
    entries = from.dict().entries();
    return run.Work(entries.size());
  }
  MOED_ASSIGN_OR_RETURN(const auto items, Elements(run, from));
  for (size_t i = 0; i < items.size(); ++i) {
    if (!IsIterable(items[i])) {
      return InvalidArgument("cannot convert dictionary update sequence element #", i, " to a sequence");
    }
    MOED_ASSIGN_OR_RETURN(const auto pair, Elements(run, items[i]));
    if (pair.size() != 2) {
      return InvalidArgument("dictionary update sequence element #", i, " has length ", pair.size(), "; 2 is required");
    }
    entries.emplace_back(pair[0], pair[1]);
  }
  return absl::OkStatus();
}

// dict(pairs, **keywords)
absl::StatusOr<Value> MakeDict(Run& run, const Arguments& arguments) {
  const Call& call = arguments.call();
  if (call.positional.size() > 1) {
    return InvalidArgument("dict expected at most 1 argument, got ", call.positional.size());
  }
  std::vector<Dict::Entry> entries;
  if (!call.positional.empty()) MOED_RETURN_IF_ERROR(AppendPairs(run, call.positional[0], entries));
  for (const auto& [name, value] : call.keywords) {
    MOED_ASSIGN_OR_RETURN(Value key, run.NewOwnText(name));
    entries.emplace_back(std::move(key), value);
  }
  return run.NewDict(std::move(entries));
}

absl::StatusOr<Value> MakeNamespace(Run& run, const Arguments& arguments) {
  MOED_ASSIGN_OR_RETURN(const Value attributes, MakeDict(run, arguments));
  const auto& entries = attributes.dict().entries();
  MOED_RETURN_IF_ERROR(run.Work(entries.size() * entries.size()));
  const size_t bytes = sizeof(Namespace) + (entries.size() + 16) * sizeof(Dict::Entry);
  MOED_ASSIGN_OR_RETURN(auto made, run.Make<Namespace>(bytes));
  for (const auto& [key, value] : entries) {
    if (!key.is(Kind::kText)) continue;  // nothing could name it
    MOED_RETURN_IF_ERROR(CheckNamespaceName(key.text()));
    made->Set(key.text(), value);
  }
  run.Keep(made);
  return Value(std::shared_ptr<Object>(std::move(made)));
}

absl::StatusOr<Value> RaiseException(Run& run, const Arguments& arguments) {
  MOED_ASSIGN_OR_RETURN(const MarkedText words, Str(run, arguments.at(0)));
  return Raised(words.text);
}

// What Python's strftime does itself, before the C library sees it.
std::string WithoutPythonsOwn(std::string_view format) {
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    const char next = format[i] == '%' && i + 1 < format.size() ? format[i + 1] : '\0';
    if (next == 'f') {
      out += "000000";
    } else if (next != 'z' && next != 'Z') {
      out += format[i];
      if (next == '\0') continue;
      out += next;
    }
    if (next != '\0') ++i;
  }
  return out;
}

absl::StatusOr<Value> StrftimeNow(Run& run, const Arguments& arguments) {
  if (!arguments.at(0).is(Kind::kText)) {
    return InvalidArgument("strftime() argument 1 must be str, not ", TypeName(arguments.at(0)));
  }
  constexpr size_t kMostOfDirective = 64;  // no directive writes more
  const std::string format = WithoutPythonsOwn(arguments.at(0).text());
  MOED_RETURN_IF_ERROR(run.Fits(format.size() * kMostOfDirective));
  if (format.empty()) return run.NewOwnText("");
  std::string text(format.size() * kMostOfDirective, '\0');
  const std::tm now = run.now();
  text.resize(std::strftime(text.data(), text.size(), format.c_str(), &now));
  return run.NewText(MarkedText::Whole(std::move(text), HoldsForeign(arguments.at(0))));
}

absl::StatusOr<Value> MakeCycler(Run& run, const Arguments& arguments) {
  if (arguments.call().positional.empty()) return InvalidArgument("at least one item has to be provided");
  return run.New<Cycler>(sizeof(Cycler), arguments.call().positional);
}

absl::StatusOr<Value> MakeJoiner(Run& run, const Arguments& arguments) {
  MOED_ASSIGN_OR_RETURN(Value separator, run.NewOwnText(", "));
  if (arguments.Find(0) != nullptr) separator = arguments.at(0);
  return run.New<Joiner>(sizeof(Joiner), std::move(separator));
}

constexpr GlobalFunction kFunctions[] = {
    {"cycler", "*", MakeCycler},
    {"dict", "*", MakeDict},
    {"joiner", "sep?", MakeJoiner},
    {"namespace", "*", MakeNamespace},
    {"raise_exception", "message", RaiseException},
    {"range", "start stop? step?", Range},
    {"strftime_now", "format", StrftimeNow},
};

class Global final : public Function {
 public:
  explicit Global(const GlobalFunction& function) : function_(function) {}
  absl::StatusOr<Value> Invoke(Run& run, Call call) override {
    MOED_ASSIGN_OR_RETURN(const Arguments arguments, Arguments::Bind(function_.name, function_.parameters, std::move(call)));
    return function_.run(run, arguments);
  }

 private:
  const GlobalFunction& function_;
};

}  // namespace

const GlobalFunction* FindGlobalFunction(std::string_view name) {
  const auto found =
      std::find_if(std::begin(kFunctions), std::end(kFunctions), [&](const GlobalFunction& row) { return row.name == name; });
  return found == std::end(kFunctions) ? nullptr : found;
}

absl::StatusOr<Value> NewGlobalFunction(Run& run, const GlobalFunction& function) {
  return run.New<Global>(sizeof(Global), function);
}

bool IsMissingFunction(std::string_view name) { return name == "lipsum" || name == "self" || name == "super"; }

absl::Status CheckNamespaceName(std::string_view name) {
  if (name.empty() || name[0] != '_') return absl::OkStatus();
  return InvalidArgument("Chat templates cannot store underscore-prefixed attributes on a namespace, but got ", QuotedText(name),
                         ". Please rename the attribute.");
}

}  // namespace moed::chat
