// Runs the syntax of a template. Of one run; not thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/chat/iterator.h"
#include "core/chat/run.h"
#include "core/chat/scope.h"
#include "core/chat/syntax.h"

namespace moed::chat {

using ScopePointer = std::shared_ptr<Scope>;

class Evaluator {
 public:
  // Both must outlive it.
  Evaluator(Run& run, const Syntax& syntax) : run_(run), syntax_(syntax) {}

  // `variables`: what the template is given, by name.
  absl::StatusOr<MarkedText> Render(const Dict& variables);

  absl::StatusOr<Value> Evaluate(const Expression& expression, const ScopePointer& scope);
  absl::Status Assign(const Target& target, const Value& value, Scope& scope);
  // What the macro writes.
  absl::StatusOr<Value> CallMacro(const MacroSyntax& macro, const ScopePointer& around, Call call);
  // What the loop writes for these items.
  absl::StatusOr<Value> RenderLoop(const For& loop, const Value& items, int depth, const ScopePointer& scope);
  absl::StatusOr<ScopePointer> NewScope(ScopePointer around) { return run_.Make<Scope>(sizeof(Scope), std::move(around)); }

 private:
  enum class Flow : uint8_t { kOn, kBreak, kContinue };
  using Result = absl::StatusOr<Value>;

  Result Evaluate(const Literal& node, const ScopePointer& scope);
  Result Evaluate(const Name& node, const ScopePointer& scope);
  Result Evaluate(const ListLiteral& node, const ScopePointer& scope);
  Result Evaluate(const DictLiteral& node, const ScopePointer& scope);
  Result Evaluate(const AttributeOfValue& node, const ScopePointer& scope);
  Result Evaluate(const ItemOfValue& node, const ScopePointer& scope);
  Result Evaluate(const SliceOfValue& node, const ScopePointer& scope);
  Result Evaluate(const CallOfValue& node, const ScopePointer& scope);
  Result Evaluate(const FilterOfValue& node, const ScopePointer& scope);
  Result Evaluate(const TestOfValue& node, const ScopePointer& scope);
  Result Evaluate(const Unary& node, const ScopePointer& scope);
  Result Evaluate(const Binary& node, const ScopePointer& scope);
  Result Evaluate(const Compare& node, const ScopePointer& scope);
  Result Evaluate(const Logical& node, const ScopePointer& scope);
  Result Evaluate(const Concat& node, const ScopePointer& scope);
  Result Evaluate(const Conditional& node, const ScopePointer& scope);
  absl::StatusOr<bool> Holds(Comparator comparator, const Value& left, const Value& right);
  absl::StatusOr<Call> EvaluateArguments(const ArgumentList& list, const ScopePointer& scope);
  Result CallValue(const Value& value, Call call);

  absl::StatusOr<Flow> Execute(const Body& body, const ScopePointer& scope, MarkedText& out);
  absl::StatusOr<Flow> Execute(const Statement& statement, const ScopePointer& scope, MarkedText& out);
  absl::StatusOr<Flow> Execute(const PlainText& node, const ScopePointer& scope, MarkedText& out);
  absl::StatusOr<Flow> Execute(const Print& node, const ScopePointer& scope, MarkedText& out);
  absl::StatusOr<Flow> Execute(const If& node, const ScopePointer& scope, MarkedText& out);
  absl::StatusOr<Flow> Execute(const For& node, const ScopePointer& scope, MarkedText& out);
  absl::StatusOr<Flow> Execute(const Set& node, const ScopePointer& scope, MarkedText& out);
  absl::StatusOr<Flow> Execute(const SetBlock& node, const ScopePointer& scope, MarkedText& out);
  absl::StatusOr<Flow> Execute(const MacroStatement& node, const ScopePointer& scope, MarkedText& out);
  absl::StatusOr<Flow> Execute(const CallBlock& node, const ScopePointer& scope, MarkedText& out);
  absl::StatusOr<Flow> Execute(const FilterBlock& node, const ScopePointer& scope, MarkedText& out);
  absl::StatusOr<Flow> Execute(const With& node, const ScopePointer& scope, MarkedText& out);
  absl::StatusOr<Flow> Execute(const Generation& node, const ScopePointer& scope, MarkedText& out);
  absl::StatusOr<Flow> Execute(const Break& node, const ScopePointer& scope, MarkedText& out);
  absl::StatusOr<Flow> Execute(const Continue& node, const ScopePointer& scope, MarkedText& out);

  absl::StatusOr<Flow> RunLoop(const For& node, const Value& items, int depth, const ScopePointer& scope, MarkedText& out);
  absl::Status Write(const Value& value, MarkedText& out);
  // What a body wrote into a buffer of its own; nullopt where a break or a continue left it, which is `flow` then.
  absl::StatusOr<std::optional<Value>> Captured(const Body& body, const ScopePointer& scope, Flow& flow);
  // Closes a buffer: its bytes are no longer waiting to be written.
  Result TakeBuffer(MarkedText buffer);
  Result Filtered(const ExpressionPtr& filter, Value captured, const ScopePointer& scope);

  Run& run_;
  const Syntax& syntax_;
  size_t buffered_ = 0;            // bytes of all buffers that are open
  std::optional<Value> captured_;  // of the filter expression that is being evaluated
};

}  // namespace moed::chat
