// Statements.
#include "core/base/status.h"
#include "core/chat/error.h"
#include "core/chat/evaluator.h"
#include "core/chat/functions.h"
#include "core/chat/loop.h"
#include "core/chat/macro.h"
#include "core/chat/show.h"

namespace moed::chat {
namespace {

// What is known of foreign bytes counts as written, too: it is memory.
size_t SizeOf(const MarkedText& text) { return text.text.size() + text.foreign.size() * sizeof(ByteRange); }

}  // namespace

absl::StatusOr<MarkedText> Evaluator::Render(const Dict& variables) {
  MOED_ASSIGN_OR_RETURN(const ScopePointer given, NewScope(nullptr));
  for (size_t i = 0; i < syntax_.names.size(); ++i) {
    const std::string& name = syntax_.names[i];
    if (const Value* value = variables.Find(name)) {
      given->Set(static_cast<NameId>(i), *value);
    } else if (const GlobalFunction* function = FindGlobalFunction(name)) {
      MOED_ASSIGN_OR_RETURN(Value global, NewGlobalFunction(run_, *function));
      given->Set(static_cast<NameId>(i), std::move(global));
    }
  }
  MOED_ASSIGN_OR_RETURN(const ScopePointer top, NewScope(given));
  MarkedText out;
  MOED_RETURN_IF_ERROR(Execute(syntax_.body, top, out).status());
  return out;
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const Body& body, const ScopePointer& scope, MarkedText& out) {
  for (const Statement& statement : body) {
    MOED_ASSIGN_OR_RETURN(const Flow flow, Execute(statement, scope, out));
    if (flow != Flow::kOn) return flow;
  }
  return Flow::kOn;
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const Statement& statement, const ScopePointer& scope, MarkedText& out) {
  MOED_RETURN_IF_ERROR(run_.Work(1));
  MOED_RETURN_IF_ERROR(run_.Enter());
  auto flow = std::visit([&](const auto& node) { return Execute(node, scope, out); }, statement.node);
  run_.Leave();
  if (!flow.ok()) return AtLine(std::move(flow).status(), statement.line);
  return flow;
}

absl::Status Evaluator::Write(const Value& value, MarkedText& out) {
  const size_t before = SizeOf(out);
  MOED_RETURN_IF_ERROR(AppendStr(run_, value, out));
  buffered_ += SizeOf(out) - before;
  return run_.FitsOutput(buffered_);
}

Evaluator::Result Evaluator::TakeBuffer(MarkedText buffer) {
  buffered_ -= SizeOf(buffer);
  return run_.NewText(std::move(buffer));
}

absl::StatusOr<std::optional<Value>> Evaluator::Captured(const Body& body, const ScopePointer& scope, Flow& flow) {
  MOED_ASSIGN_OR_RETURN(const ScopePointer inner, NewScope(scope));
  MarkedText buffer;
  MOED_ASSIGN_OR_RETURN(flow, Execute(body, inner, buffer));
  MOED_ASSIGN_OR_RETURN(Value text, TakeBuffer(std::move(buffer)));
  if (flow != Flow::kOn) return std::nullopt;
  return text;
}

Evaluator::Result Evaluator::Filtered(const ExpressionPtr& filter, Value captured, const ScopePointer& scope) {
  if (filter == nullptr) return captured;
  captured_ = std::move(captured);
  return Evaluate(*filter, scope);
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const PlainText& node, const ScopePointer&, MarkedText& out) {
  MOED_RETURN_IF_ERROR(Write(node.text, out));
  return Flow::kOn;
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const Print& node, const ScopePointer& scope, MarkedText& out) {
  for (const ExpressionPtr& expression : node.values) {
    MOED_ASSIGN_OR_RETURN(const Value value, Evaluate(*expression, scope));
    MOED_RETURN_IF_ERROR(Write(value, out));
  }
  return Flow::kOn;
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const If& node, const ScopePointer& scope, MarkedText& out) {
  for (const auto& [test, body] : node.branches) {
    MOED_ASSIGN_OR_RETURN(const Value value, Evaluate(*test, scope));
    if (IsTrue(value)) return Execute(body, scope, out);
  }
  return Execute(node.otherwise, scope, out);
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const For& node, const ScopePointer& scope, MarkedText& out) {
  MOED_ASSIGN_OR_RETURN(const Value items, Evaluate(*node.items, scope));
  return RunLoop(node, items, 0, scope, out);
}

absl::StatusOr<Value> Evaluator::RenderLoop(const For& loop, const Value& items, int depth, const ScopePointer& scope) {
  MOED_RETURN_IF_ERROR(run_.Enter());
  MarkedText buffer;
  const auto flow = RunLoop(loop, items, depth, scope, buffer);
  run_.Leave();
  MOED_RETURN_IF_ERROR(flow.status());
  return TakeBuffer(std::move(buffer));
}

absl::StatusOr<Evaluator::Flow> Evaluator::RunLoop(const For& node, const Value& items, int depth, const ScopePointer& scope,
                                                   MarkedText& out) {
  Value iterated = items;
  MOED_ASSIGN_OR_RETURN(auto iterator, Iterate(run_, items));
  if (node.test != nullptr) {
    MOED_ASSIGN_OR_RETURN(iterator, run_.Make<FilteredItems>(sizeof(FilteredItems), *this, node, std::move(iterator), scope));
    iterated = Value(std::shared_ptr<Object>(iterator));
  }
  std::shared_ptr<Function> recurse;
  if (node.recursive) {
    MOED_ASSIGN_OR_RETURN(recurse, run_.Make<LoopFunction>(sizeof(LoopFunction), *this, node, depth, scope));
  }
  MOED_ASSIGN_OR_RETURN(const auto loop, run_.Make<Loop>(sizeof(Loop), iterated, std::move(iterator), depth, std::move(recurse)));
  MOED_ASSIGN_OR_RETURN(ScopePointer inner, NewScope(scope));
  bool whole_turn = false;  // the body was run to its end at least once
  while (true) {
    MOED_ASSIGN_OR_RETURN(const auto item, loop->Next(run_));
    if (!item) break;
    if (inner.use_count() > 1) {  // somebody kept the last turn's
      MOED_ASSIGN_OR_RETURN(inner, NewScope(scope));
    }
    inner->Clear();
    inner->Set(kLoopName, Value(std::shared_ptr<Object>(loop)));
    MOED_RETURN_IF_ERROR(Assign(node.target, *item, *inner));
    MOED_ASSIGN_OR_RETURN(const Flow flow, Execute(node.body, inner, out));
    if (flow == Flow::kBreak) break;
    whole_turn |= flow == Flow::kOn;
  }
  if (whole_turn || node.otherwise.empty()) return Flow::kOn;
  MOED_ASSIGN_OR_RETURN(const ScopePointer other, NewScope(scope));
  return Execute(node.otherwise, other, out);
}

absl::Status Evaluator::Assign(const Target& target, const Value& value, Scope& scope) {
  if (target.tuple) {
    if (!IsIterable(value)) return InvalidArgument("cannot unpack non-iterable ", TypeName(value), " object");
    MOED_ASSIGN_OR_RETURN(const auto items, Elements(run_, value));
    const size_t wanted = target.parts.size();
    if (items.size() > wanted) return InvalidArgument("too many values to unpack (expected ", wanted, ")");
    if (items.size() < wanted) {
      return InvalidArgument("not enough values to unpack (expected ", wanted, ", got ", items.size(), ")");
    }
    for (size_t i = 0; i < wanted; ++i) MOED_RETURN_IF_ERROR(Assign(target.parts[i], items[i], scope));
    return absl::OkStatus();
  }
  if (!target.attribute) {
    scope.Set(target.name, value);
    return absl::OkStatus();
  }
  const Value* space = scope.Find(target.name);
  if (space == nullptr || !space->is(Kind::kNamespace)) return InvalidArgument("cannot assign attribute on non-namespace object");
  MOED_RETURN_IF_ERROR(CheckNamespaceName(*target.attribute));
  space->as<Namespace>().Set(*target.attribute, value);
  return absl::OkStatus();
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const Set& node, const ScopePointer& scope, MarkedText&) {
  MOED_ASSIGN_OR_RETURN(const Value value, Evaluate(*node.value, scope));
  MOED_RETURN_IF_ERROR(Assign(node.target, value, *scope));
  return Flow::kOn;
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const SetBlock& node, const ScopePointer& scope, MarkedText&) {
  Flow flow = Flow::kOn;
  MOED_ASSIGN_OR_RETURN(auto captured, Captured(node.body, scope, flow));
  if (!captured) return flow;
  MOED_ASSIGN_OR_RETURN(const Value value, Filtered(node.filter, *std::move(captured), scope));
  MOED_RETURN_IF_ERROR(Assign(node.target, value, *scope));
  return Flow::kOn;
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const FilterBlock& node, const ScopePointer& scope, MarkedText& out) {
  Flow flow = Flow::kOn;
  MOED_ASSIGN_OR_RETURN(auto captured, Captured(node.body, scope, flow));
  if (!captured) return flow;
  MOED_ASSIGN_OR_RETURN(const Value value, Filtered(node.filter, *std::move(captured), scope));
  MOED_RETURN_IF_ERROR(Write(value, out));
  return Flow::kOn;
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const MacroStatement& node, const ScopePointer& scope, MarkedText&) {
  MOED_ASSIGN_OR_RETURN(Value macro, run_.New<Macro>(sizeof(Macro), *this, *node.macro, scope));
  run_.Keep(scope);  // the macro's, which holds the macro
  scope->Set(node.name, std::move(macro));
  return Flow::kOn;
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const CallBlock& node, const ScopePointer& scope, MarkedText& out) {
  const auto& call_node = std::get<CallOfValue>(node.call->node);
  MOED_ASSIGN_OR_RETURN(Value caller, run_.New<Macro>(sizeof(Macro), *this, *node.caller, scope));
  MOED_ASSIGN_OR_RETURN(const Value called, Evaluate(*call_node.value, scope));
  MOED_ASSIGN_OR_RETURN(Call call, EvaluateArguments(call_node.arguments, scope));
  run_.Keep(scope);
  call.keywords.emplace_back("caller", std::move(caller));
  MOED_ASSIGN_OR_RETURN(const Value text, CallValue(called, std::move(call)));
  MOED_RETURN_IF_ERROR(Write(text, out));
  return Flow::kOn;
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const With& node, const ScopePointer& scope, MarkedText& out) {
  MOED_ASSIGN_OR_RETURN(const ScopePointer inner, NewScope(scope));
  for (const auto& [target, expression] : node.values) {
    MOED_ASSIGN_OR_RETURN(const Value value, Evaluate(*expression, scope));
    MOED_RETURN_IF_ERROR(Assign(target, value, *inner));
  }
  return Execute(node.body, inner, out);
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const Generation& node, const ScopePointer& scope, MarkedText& out) {
  MOED_ASSIGN_OR_RETURN(const ScopePointer inner, NewScope(scope));
  return Execute(node.body, inner, out);
}

absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const Break&, const ScopePointer&, MarkedText&) { return Flow::kBreak; }
absl::StatusOr<Evaluator::Flow> Evaluator::Execute(const Continue&, const ScopePointer&, MarkedText&) { return Flow::kContinue; }

}  // namespace moed::chat
