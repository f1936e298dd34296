#include "core/chat/make_expression.h"

#include <algorithm>

#include "core/chat/error.h"

namespace moed::chat {
namespace {

constexpr int kMostDepth = 200;  // operations within each other: a + b + c are two

int DepthOf(const ExpressionPtr& expression) { return expression == nullptr ? 0 : expression->depth; }

int DepthOf(const std::vector<ExpressionPtr>& expressions) {
  int depth = 0;
  for (const auto& expression : expressions) depth = std::max(depth, DepthOf(expression));
  return depth;
}

int DepthOf(const ArgumentList& list) {
  int depth = std::max({DepthOf(list.positional), DepthOf(list.more_positional), DepthOf(list.more_keywords)});
  for (const auto& [name, value] : list.keywords) depth = std::max(depth, DepthOf(value));
  return depth;
}

int DepthOf(const Literal&) { return 0; }
int DepthOf(const Name&) { return 0; }
int DepthOf(const ListLiteral& node) { return DepthOf(node.items); }
int DepthOf(const DictLiteral& node) {
  int depth = 0;
  for (const auto& [key, value] : node.entries) depth = std::max({depth, DepthOf(key), DepthOf(value)});
  return depth;
}
int DepthOf(const AttributeOfValue& node) { return DepthOf(node.value); }
int DepthOf(const ItemOfValue& node) { return std::max(DepthOf(node.value), DepthOf(node.key)); }
int DepthOf(const SliceOfValue& node) {
  return std::max({DepthOf(node.value), DepthOf(node.start), DepthOf(node.stop), DepthOf(node.step)});
}
int DepthOf(const CallOfValue& node) { return std::max(DepthOf(node.value), DepthOf(node.arguments)); }
int DepthOf(const FilterOfValue& node) { return std::max(DepthOf(node.value), DepthOf(node.arguments)); }
int DepthOf(const TestOfValue& node) { return std::max(DepthOf(node.value), DepthOf(node.arguments)); }
int DepthOf(const Unary& node) { return DepthOf(node.value); }
int DepthOf(const Binary& node) { return std::max(DepthOf(node.left), DepthOf(node.right)); }
int DepthOf(const Compare& node) {
  int depth = DepthOf(node.first);
  for (const auto& [comparator, value] : node.others) depth = std::max(depth, DepthOf(value));
  return depth;
}
int DepthOf(const Logical& node) { return std::max(DepthOf(node.left), DepthOf(node.right)); }
int DepthOf(const Concat& node) { return DepthOf(node.parts); }
int DepthOf(const Conditional& node) { return std::max({DepthOf(node.test), DepthOf(node.then), DepthOf(node.otherwise)}); }

}  // namespace

absl::StatusOr<ExpressionPtr> MakeExpression(int line, decltype(Expression::node) node) {
  const int depth = 1 + std::visit([](const auto& kind) { return DepthOf(kind); }, node);
  if (depth > kMostDepth) return SyntaxError(line, "an expression of more than ", kMostDepth, " operations within each other");
  return std::make_unique<Expression>(Expression{line, std::move(node), depth});
}

}  // namespace moed::chat
