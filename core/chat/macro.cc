#include "core/chat/macro.h"

#include <algorithm>

#include "core/base/status.h"
#include "core/chat/python_text.h"
#include "core/chat/run.h"

namespace moed::chat {
namespace {

using Keywords = std::vector<std::pair<std::string, Value>>;

std::optional<Value> TakeKeyword(Keywords& keywords, std::string_view name) {
  const auto found = std::find_if(keywords.begin(), keywords.end(), [&](const auto& keyword) { return keyword.first == name; });
  if (found == keywords.end()) return std::nullopt;
  Value value = std::move(found->second);
  keywords.erase(found);
  return value;
}

absl::StatusOr<Value> DictOf(Run& run, const Keywords& keywords) {
  std::vector<Dict::Entry> entries;
  for (const auto& [name, value] : keywords) {
    MOED_ASSIGN_OR_RETURN(Value key, run.NewOwnText(name));
    entries.emplace_back(std::move(key), value);
  }
  return run.NewDict(std::move(entries));
}

std::string ShownName(const MacroSyntax& macro) { return macro.name.empty() ? "None" : QuotedText(macro.name); }

absl::Status CheckKeywords(const MacroSyntax& macro, const Keywords& keywords) {
  if (keywords.empty()) return absl::OkStatus();
  const bool caller =
      std::any_of(keywords.begin(), keywords.end(), [](const auto& keyword) { return keyword.first == "caller"; });
  if (caller) {
    return InvalidArgument("macro ", ShownName(macro),
                           " was invoked with two values for the special caller argument. This is most likely a bug.");
  }
  return InvalidArgument("macro ", ShownName(macro), " takes no keyword argument ", QuotedText(keywords[0].first));
}

}  // namespace

absl::StatusOr<Value> Evaluator::CallMacro(const MacroSyntax& macro, const ScopePointer& around, Call call) {
  MOED_ASSIGN_OR_RETURN(const ScopePointer scope, NewScope(around));
  const size_t count = macro.parameters.size();
  std::vector<std::optional<Value>> given(count);
  bool has_caller = false;
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = macro.parameter_names[i];
    given[i] = i < call.positional.size() ? std::move(call.positional[i]) : TakeKeyword(call.keywords, name);
    has_caller |= name == "caller";
  }
  if (macro.uses_caller && !has_caller) {
    auto caller = TakeKeyword(call.keywords, "caller");
    if (!caller) {
      MOED_ASSIGN_OR_RETURN(caller, run_.New<Undefined>(sizeof(Undefined), Undefined::Reason::kHint, "No caller defined"));
    }
    scope->Set(kCallerName, *std::move(caller));
  }
  if (macro.uses_kwargs) {
    MOED_ASSIGN_OR_RETURN(Value keywords, DictOf(run_, call.keywords));
    scope->Set(kKwargsName, std::move(keywords));
  } else {
    MOED_RETURN_IF_ERROR(CheckKeywords(macro, call.keywords));
  }
  if (macro.uses_varargs) {
    const auto rest = call.positional.begin() + static_cast<ptrdiff_t>(std::min(count, call.positional.size()));
    MOED_ASSIGN_OR_RETURN(Value more, run_.NewTuple({rest, call.positional.end()}));
    scope->Set(kVarargsName, std::move(more));
  } else if (call.positional.size() > count) {
    return InvalidArgument("macro ", ShownName(macro), " takes not more than ", count, " argument(s)");
  }
  for (size_t i = 0; i < count; ++i) {
    const Parameter& parameter = macro.parameters[i];
    if (!given[i]) {
      if (parameter.otherwise != nullptr) {
        MOED_ASSIGN_OR_RETURN(given[i], Evaluate(*parameter.otherwise, scope));
      } else {
        MOED_ASSIGN_OR_RETURN(
            given[i], run_.New<Undefined>(sizeof(Undefined), Undefined::Reason::kHint,
                                          StrCat("parameter ", QuotedText(macro.parameter_names[i]), " was not provided")));
      }
    }
    scope->Set(parameter.name, *std::move(given[i]));
  }
  MarkedText buffer;
  MOED_RETURN_IF_ERROR(run_.Enter());
  const auto flow = Execute(macro.body, scope, buffer);
  run_.Leave();
  MOED_RETURN_IF_ERROR(flow.status());
  return TakeBuffer(std::move(buffer));
}

absl::StatusOr<Value> Macro::Invoke(Run&, Call call) { return evaluator_.CallMacro(macro_, scope_, std::move(call)); }

absl::StatusOr<std::optional<Value>> Macro::Attribute(Run& run, std::string_view name) {
  if (name == "catch_kwargs") return Value(macro_.uses_kwargs);
  if (name == "catch_varargs") return Value(macro_.uses_varargs);
  if (name == "name" && macro_.name.empty()) return Value();
  if (name == "name") return run.NewOwnText(macro_.name);
  if (name != "arguments") return std::nullopt;
  std::vector<Value> arguments;
  for (const std::string& parameter : macro_.parameter_names) {
    MOED_ASSIGN_OR_RETURN(Value argument, run.NewOwnText(parameter));
    arguments.push_back(std::move(argument));
  }
  return run.NewTuple(std::move(arguments));
}

absl::StatusOr<Value> LoopFunction::Invoke(Run&, Call call) {
  if (call.positional.size() != 1 || !call.keywords.empty()) {
    return InvalidArgument("a recursive loop takes 1 argument (", call.positional.size(), " given)");
  }
  return evaluator_.RenderLoop(loop_, call.positional[0], depth_ + 1, scope_);
}

absl::StatusOr<std::optional<Value>> FilteredItems::Next(Run& run) {
  while (true) {
    MOED_ASSIGN_OR_RETURN(auto item, items_->Next(run));
    if (!item) return std::nullopt;
    MOED_ASSIGN_OR_RETURN(const ScopePointer scope, evaluator_.NewScope(scope_));
    MOED_RETURN_IF_ERROR(evaluator_.Assign(loop_.target, *item, *scope));
    MOED_ASSIGN_OR_RETURN(const Value holds, evaluator_.Evaluate(*loop_.test, scope));
    if (IsTrue(holds)) return item;
  }
}

}  // namespace moed::chat
