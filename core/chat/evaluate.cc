// Expressions.
#include "core/base/status.h"
#include "core/chat/equality.h"
#include "core/chat/error.h"
#include "core/chat/evaluator.h"
#include "core/chat/loop.h"
#include "core/chat/python_text.h"
#include "core/chat/show.h"
#include "core/chat/subscript.h"

namespace moed::chat {

absl::StatusOr<Value> Evaluator::Evaluate(const Expression& expression, const ScopePointer& scope) {
  MOED_RETURN_IF_ERROR(run_.Work(1));
  MOED_RETURN_IF_ERROR(run_.Enter());
  Result value = std::visit([&](const auto& node) { return Evaluate(node, scope); }, expression.node);
  run_.Leave();
  if (!value.ok()) return AtLine(std::move(value).status(), expression.line);
  return value;
}

Evaluator::Result Evaluator::Evaluate(const Literal& node, const ScopePointer&) { return node.value; }

Evaluator::Result Evaluator::Evaluate(const Name& node, const ScopePointer& scope) {
  const Value* value = scope->Find(node.id);
  if (value != nullptr) return *value;
  return run_.New<Undefined>(sizeof(Undefined), Undefined::Reason::kVariable, syntax_.names[static_cast<size_t>(node.id)]);
}

Evaluator::Result Evaluator::Evaluate(const ListLiteral& node, const ScopePointer& scope) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const ExpressionPtr& item : node.items) {
    MOED_ASSIGN_OR_RETURN(Value value, Evaluate(*item, scope));
    items.push_back(std::move(value));
  }
  return run_.NewSequence(node.tuple ? Flavor::kTuple : Flavor::kList, std::move(items));
}

Evaluator::Result Evaluator::Evaluate(const DictLiteral& node, const ScopePointer& scope) {
  std::vector<Dict::Entry> entries;
  entries.reserve(node.entries.size());
  for (const auto& [key_expression, value_expression] : node.entries) {
    MOED_ASSIGN_OR_RETURN(Value key, Evaluate(*key_expression, scope));
    MOED_ASSIGN_OR_RETURN(Value value, Evaluate(*value_expression, scope));
    entries.emplace_back(std::move(key), std::move(value));
  }
  return run_.NewDict(std::move(entries));
}

Evaluator::Result Evaluator::Evaluate(const AttributeOfValue& node, const ScopePointer& scope) {
  MOED_ASSIGN_OR_RETURN(const Value value, Evaluate(*node.value, scope));
  return Attribute(run_, value, node.name);
}

Evaluator::Result Evaluator::Evaluate(const ItemOfValue& node, const ScopePointer& scope) {
  MOED_ASSIGN_OR_RETURN(const Value value, Evaluate(*node.value, scope));
  MOED_ASSIGN_OR_RETURN(const Value key, Evaluate(*node.key, scope));
  return Item(run_, value, key);
}

Evaluator::Result Evaluator::Evaluate(const SliceOfValue& node, const ScopePointer& scope) {
  MOED_ASSIGN_OR_RETURN(const Value value, Evaluate(*node.value, scope));
  SliceBounds bounds;
  const std::pair<const ExpressionPtr&, std::optional<Value>&> given[] = {
      {node.start, bounds.start}, {node.stop, bounds.stop}, {node.step, bounds.step}};
  for (const auto& [expression, bound] : given) {
    if (expression == nullptr) continue;
    MOED_ASSIGN_OR_RETURN(bound, Evaluate(*expression, scope));
  }
  return Slice(run_, value, bounds);
}

absl::StatusOr<Call> Evaluator::EvaluateArguments(const ArgumentList& list, const ScopePointer& scope) {
  Call call;
  for (const ExpressionPtr& argument : list.positional) {
    MOED_ASSIGN_OR_RETURN(Value value, Evaluate(*argument, scope));
    call.positional.push_back(std::move(value));
  }
  if (list.more_positional != nullptr) {
    MOED_ASSIGN_OR_RETURN(const Value more, Evaluate(*list.more_positional, scope));
    MOED_ASSIGN_OR_RETURN(const auto elements, Elements(run_, more));
    call.positional.insert(call.positional.end(), elements.begin(), elements.end());
  }
  for (const auto& [name, argument] : list.keywords) {
    MOED_ASSIGN_OR_RETURN(Value value, Evaluate(*argument, scope));
    call.keywords.emplace_back(name, std::move(value));
  }
  if (list.more_keywords == nullptr) return call;
  MOED_ASSIGN_OR_RETURN(const Value more, Evaluate(*list.more_keywords, scope));
  if (!more.is(Kind::kDict)) return InvalidArgument("argument after ** must be a mapping, not ", TypeName(more));
  MOED_RETURN_IF_ERROR(run_.Work(more.dict().entries().size()));
  for (const auto& [name, value] : more.dict().entries()) {
    if (!name.is(Kind::kText)) return InvalidArgument("keywords must be strings");
    call.keywords.emplace_back(name.text(), value);
  }
  return call;
}

Evaluator::Result Evaluator::CallValue(const Value& value, Call call) {
  switch (value.kind()) {
    case Kind::kFunction:
      return value.as<Function>().Invoke(run_, std::move(call));
    case Kind::kLoop:
      if (value.as<Loop>().recurse() == nullptr) {
        return InvalidArgument("The loop must have the 'recursive' marker to be called recursively.");
      }
      return value.as<Loop>().recurse()->Invoke(run_, std::move(call));
    case Kind::kUndefined:
      return InvalidArgument(value.as<Undefined>().Words());
    default:
      return InvalidArgument("'", TypeName(value), "' object is not callable");
  }
}

Evaluator::Result Evaluator::Evaluate(const CallOfValue& node, const ScopePointer& scope) {
  MOED_ASSIGN_OR_RETURN(const Value value, Evaluate(*node.value, scope));
  MOED_ASSIGN_OR_RETURN(Call call, EvaluateArguments(node.arguments, scope));
  return CallValue(value, std::move(call));
}

Evaluator::Result Evaluator::Evaluate(const FilterOfValue& node, const ScopePointer& scope) {
  Value value;
  if (node.value == nullptr) {
    value = *std::exchange(captured_, std::nullopt);
  } else {
    MOED_ASSIGN_OR_RETURN(value, Evaluate(*node.value, scope));
  }
  MOED_ASSIGN_OR_RETURN(Call call, EvaluateArguments(node.arguments, scope));
  if (node.filter == nullptr) return InvalidArgument("No filter named ", QuotedText(node.name), " found.");
  return ApplyFilter(run_, *node.filter, value, std::move(call));
}

Evaluator::Result Evaluator::Evaluate(const TestOfValue& node, const ScopePointer& scope) {
  MOED_ASSIGN_OR_RETURN(const Value value, Evaluate(*node.value, scope));
  MOED_ASSIGN_OR_RETURN(Call call, EvaluateArguments(node.arguments, scope));
  if (node.test == nullptr) return InvalidArgument("No test named ", QuotedText(node.name), " found.");
  MOED_ASSIGN_OR_RETURN(const bool holds, ApplyTest(run_, *node.test, value, std::move(call)));
  return Value(holds);
}

Evaluator::Result Evaluator::Evaluate(const Unary& node, const ScopePointer& scope) {
  MOED_ASSIGN_OR_RETURN(const Value value, Evaluate(*node.value, scope));
  if (node.op == UnaryOperator::kNot) return Value(!IsTrue(value));
  return node.op == UnaryOperator::kNegate ? Negated(value) : Positive(value);
}

Evaluator::Result Evaluator::Evaluate(const Binary& node, const ScopePointer& scope) {
  MOED_ASSIGN_OR_RETURN(const Value left, Evaluate(*node.left, scope));
  MOED_ASSIGN_OR_RETURN(const Value right, Evaluate(*node.right, scope));
  return Compute(run_, node.op, left, right);
}

absl::StatusOr<bool> Evaluator::Holds(Comparator comparator, const Value& left, const Value& right) {
  switch (comparator) {
    case Comparator::kEqual:
      return AreEqual(run_, left, right);
    case Comparator::kNotEqual: {
      MOED_ASSIGN_OR_RETURN(const bool equal, AreEqual(run_, left, right));
      return !equal;
    }
    case Comparator::kIn:
      return Contains(run_, right, left);
    case Comparator::kNotIn: {
      MOED_ASSIGN_OR_RETURN(const bool contained, Contains(run_, right, left));
      return !contained;
    }
    default:
      return InOrder(run_, static_cast<Order>(comparator), left, right);
  }
}

Evaluator::Result Evaluator::Evaluate(const Compare& node, const ScopePointer& scope) {
  MOED_ASSIGN_OR_RETURN(Value left, Evaluate(*node.first, scope));
  for (const auto& [comparator, expression] : node.others) {
    MOED_ASSIGN_OR_RETURN(Value right, Evaluate(*expression, scope));
    MOED_ASSIGN_OR_RETURN(const bool holds, Holds(comparator, left, right));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Evaluator::Result Evaluator::Evaluate(const Logical& node, const ScopePointer& scope) {
  MOED_ASSIGN_OR_RETURN(Value left, Evaluate(*node.left, scope));
  if (IsTrue(left) != node.all) return left;
  return Evaluate(*node.right, scope);
}

Evaluator::Result Evaluator::Evaluate(const Concat& node, const ScopePointer& scope) {
  std::vector<Value> parts;  // all are evaluated before any is shown
  for (const ExpressionPtr& part : node.parts) {
    MOED_ASSIGN_OR_RETURN(Value value, Evaluate(*part, scope));
    parts.push_back(std::move(value));
  }
  MarkedText text;
  for (const Value& part : parts) MOED_RETURN_IF_ERROR(AppendStr(run_, part, text));
  return run_.NewText(std::move(text));
}

Evaluator::Result Evaluator::Evaluate(const Conditional& node, const ScopePointer& scope) {
  MOED_ASSIGN_OR_RETURN(const Value test, Evaluate(*node.test, scope));
  if (IsTrue(test)) return Evaluate(*node.then, scope);
  if (node.otherwise != nullptr) return Evaluate(*node.otherwise, scope);
  return run_.New<Undefined>(
      sizeof(Undefined), Undefined::Reason::kHint,
      StrCat("the inline if-expression on line ", node.line, " evaluated to false and no else section was defined."));
}

}  // namespace moed::chat
