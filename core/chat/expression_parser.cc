#include "core/chat/expression_parser.h"

#include <algorithm>
#include <optional>

#include "core/chat/functions.h"
#include "core/chat/make_expression.h"
#include "core/chat/python_text.h"

namespace moed::chat {

ExpressionParser::Result ExpressionParser::ParseExpression(bool with_conditional) {
  const Nesting nesting(nested_);
  if (nested_ > kMostNested)
    return SyntaxError(tokens_.line(), "an expression of more than ", kMostNested, " brackets within each other");
  return with_conditional ? ParseConditional() : Or();
}

ExpressionParser::Result ExpressionParser::ParseConditional() {
  const int line = tokens_.line();
  const size_t known = unknown_.size();
  MOED_ASSIGN_OR_RETURN(ExpressionPtr value, Or());
  while (tokens_.SkipName("if")) {
    const SoftPlace soft(*this, true);
    MOED_ASSIGN_OR_RETURN(ExpressionPtr test, Or());
    ExpressionPtr otherwise;
    if (tokens_.SkipName("else")) {
      MOED_ASSIGN_OR_RETURN(otherwise, ParseExpression());
    }
    for (size_t i = known; i < unknown_.size(); ++i) unknown_[i].late = true;
    MOED_ASSIGN_OR_RETURN(value,
                          MakeExpression(line, Conditional{std::move(test), std::move(value), std::move(otherwise), line}));
  }
  return value;
}

ExpressionParser::Result ExpressionParser::Or() {
  const int line = tokens_.line();
  MOED_ASSIGN_OR_RETURN(ExpressionPtr left, And());
  while (tokens_.SkipName("or")) {
    MOED_ASSIGN_OR_RETURN(ExpressionPtr right, And());
    MOED_ASSIGN_OR_RETURN(left, MakeExpression(line, Logical{false, std::move(left), std::move(right)}));
  }
  return left;
}

ExpressionParser::Result ExpressionParser::And() {
  const int line = tokens_.line();
  MOED_ASSIGN_OR_RETURN(ExpressionPtr left, Not());
  while (tokens_.SkipName("and")) {
    MOED_ASSIGN_OR_RETURN(ExpressionPtr right, Not());
    MOED_ASSIGN_OR_RETURN(left, MakeExpression(line, Logical{true, std::move(left), std::move(right)}));
  }
  return left;
}

ExpressionParser::Result ExpressionParser::Not() {
  const int line = tokens_.line();
  int negations = 0;
  while (tokens_.SkipName("not")) ++negations;
  MOED_ASSIGN_OR_RETURN(ExpressionPtr value, Comparison());
  for (; negations > 0; --negations) {
    MOED_ASSIGN_OR_RETURN(value, MakeExpression(line, Unary{UnaryOperator::kNot, std::move(value)}));
  }
  return value;
}

ExpressionParser::Result ExpressionParser::Comparison() {
  constexpr std::pair<std::string_view, Comparator> kSigns[] = {{"<", Comparator::kLess},    {"<=", Comparator::kLessOrEqual},
                                                                {">", Comparator::kGreater}, {">=", Comparator::kGreaterOrEqual},
                                                                {"==", Comparator::kEqual},  {"!=", Comparator::kNotEqual}};
  const int line = tokens_.line();
  MOED_ASSIGN_OR_RETURN(ExpressionPtr first, Sum());
  std::vector<std::pair<Comparator, ExpressionPtr>> others;
  while (true) {
    const auto sign =
        std::find_if(std::begin(kSigns), std::end(kSigns), [&](const auto& row) { return tokens_.IsOperator(row.first); });
    std::optional<Comparator> comparator;
    if (sign != std::end(kSigns)) {
      tokens_.Take();
      comparator = sign->second;
    } else if (tokens_.SkipName("in")) {
      comparator = Comparator::kIn;
    } else if (tokens_.IsName("not") && tokens_.ahead().kind == TokenKind::kName && tokens_.ahead().text == "in") {
      tokens_.Take();
      tokens_.Take();
      comparator = Comparator::kNotIn;
    }
    if (!comparator) break;
    MOED_ASSIGN_OR_RETURN(ExpressionPtr other, Sum());
    others.emplace_back(*comparator, std::move(other));
  }
  if (others.empty()) return first;
  return MakeExpression(line, Compare{std::move(first), std::move(others)});
}

ExpressionParser::Result ExpressionParser::Sum() {
  const int line = tokens_.line();
  MOED_ASSIGN_OR_RETURN(ExpressionPtr left, Concatenation());
  while (tokens_.IsOperator("+") || tokens_.IsOperator("-")) {
    const Operator op = tokens_.Take().text == "+" ? Operator::kAdd : Operator::kSubtract;
    MOED_ASSIGN_OR_RETURN(ExpressionPtr right, Concatenation());
    MOED_ASSIGN_OR_RETURN(left, MakeExpression(line, Binary{op, std::move(left), std::move(right)}));
  }
  return left;
}

ExpressionParser::Result ExpressionParser::Concatenation() {
  const int line = tokens_.line();
  MOED_ASSIGN_OR_RETURN(ExpressionPtr first, Product());
  if (!tokens_.IsOperator("~")) return first;
  Concat concat;
  concat.parts.push_back(std::move(first));
  while (tokens_.SkipOperator("~")) {
    MOED_ASSIGN_OR_RETURN(ExpressionPtr part, Product());
    concat.parts.push_back(std::move(part));
  }
  return MakeExpression(line, std::move(concat));
}

ExpressionParser::Result ExpressionParser::Product() {
  constexpr std::pair<std::string_view, Operator> kSigns[] = {
      {"*", Operator::kMultiply}, {"/", Operator::kDivide}, {"//", Operator::kFloorDivide}, {"%", Operator::kModulo}};
  const int line = tokens_.line();
  MOED_ASSIGN_OR_RETURN(ExpressionPtr left, Power());
  while (true) {
    const auto sign =
        std::find_if(std::begin(kSigns), std::end(kSigns), [&](const auto& row) { return tokens_.IsOperator(row.first); });
    if (sign == std::end(kSigns)) return left;
    tokens_.Take();
    MOED_ASSIGN_OR_RETURN(ExpressionPtr right, Power());
    MOED_ASSIGN_OR_RETURN(left, MakeExpression(line, Binary{sign->second, std::move(left), std::move(right)}));
  }
}

ExpressionParser::Result ExpressionParser::Power() {
  const int line = tokens_.line();
  MOED_ASSIGN_OR_RETURN(ExpressionPtr left, UnaryOperation(true));
  while (tokens_.SkipOperator("**")) {
    MOED_ASSIGN_OR_RETURN(ExpressionPtr right, UnaryOperation(true));
    MOED_ASSIGN_OR_RETURN(left, MakeExpression(line, Binary{Operator::kPower, std::move(left), std::move(right)}));
  }
  return left;
}

ExpressionParser::Result ExpressionParser::UnaryOperation(bool with_filters) {
  const Nesting nesting(nested_);
  if (nested_ > kMostNested)
    return SyntaxError(tokens_.line(), "an expression of more than ", kMostNested, " signs within each other");
  const int line = tokens_.line();
  ExpressionPtr value;
  if (tokens_.IsOperator("-") || tokens_.IsOperator("+")) {
    const auto op = tokens_.Take().text == "-" ? UnaryOperator::kNegate : UnaryOperator::kPositive;
    MOED_ASSIGN_OR_RETURN(value, UnaryOperation(false));
    MOED_ASSIGN_OR_RETURN(value, MakeExpression(line, Unary{op, std::move(value)}));
  } else {
    MOED_ASSIGN_OR_RETURN(value, Primary());
  }
  MOED_ASSIGN_OR_RETURN(value, Postfix(std::move(value)));
  if (!with_filters) return value;
  return FiltersAndTests(std::move(value));
}

ExpressionParser::Result ExpressionParser::Primary() {
  const int line = tokens_.line();
  switch (tokens_.now().kind) {
    case TokenKind::kName:
      return NameOrConstant();
    case TokenKind::kText:
      return Texts();
    case TokenKind::kInteger:
      return MakeExpression(line, Literal{Value(tokens_.Take().integer)});
    case TokenKind::kFloat:
      return MakeExpression(line, Literal{Value(tokens_.Take().number)});
    default:
      break;
  }
  if (tokens_.IsOperator("[")) return ParseList();
  if (tokens_.IsOperator("{")) return ParseDict();
  if (!tokens_.SkipOperator("(")) return SyntaxError(line, "unexpected '", tokens_.Shown(), "'");
  if (tokens_.SkipOperator(")")) return MakeExpression(line, ListLiteral{{}, true});
  MOED_ASSIGN_OR_RETURN(ExpressionPtr value, ParseTuple(true));
  MOED_RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
  return value;
}

ExpressionParser::Result ExpressionParser::NameOrConstant() {
  const Token token = tokens_.Take();
  const std::string& name = token.text;
  if (name == "true" || name == "True") return MakeExpression(token.line, Literal{Value(true)});
  if (name == "false" || name == "False") return MakeExpression(token.line, Literal{Value(false)});
  if (name == "none" || name == "None") return MakeExpression(token.line, Literal{Value()});
  if (IsMissingFunction(name)) return SyntaxError(token.line, "the function '", name, "' is not supported");
  if (name == "caller") uses_.caller = true;
  if (name == "varargs") uses_.varargs = true;
  if (name == "kwargs") uses_.kwargs = true;
  return MakeExpression(token.line, Name{names_.Id(name)});
}

// Texts that follow each other are one.
ExpressionParser::Result ExpressionParser::Texts() {
  const int line = tokens_.line();
  std::string text;
  while (tokens_.Is(TokenKind::kText)) text += tokens_.Take().text;
  return MakeExpression(line, Literal{MakeText(std::move(text))});
}

ExpressionParser::Result ExpressionParser::ParseList() {
  const int line = tokens_.line();
  MOED_RETURN_IF_ERROR(tokens_.ExpectOperator("["));
  ListLiteral list{{}, false};
  while (!tokens_.IsOperator("]")) {
    if (!list.items.empty()) MOED_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    if (tokens_.IsOperator("]")) break;
    MOED_ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression());
    list.items.push_back(std::move(item));
  }
  tokens_.Take();
  return MakeExpression(line, std::move(list));
}

ExpressionParser::Result ExpressionParser::ParseDict() {
  const int line = tokens_.line();
  MOED_RETURN_IF_ERROR(tokens_.ExpectOperator("{"));
  DictLiteral dict;
  while (!tokens_.IsOperator("}")) {
    if (!dict.entries.empty()) MOED_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    if (tokens_.IsOperator("}")) break;
    MOED_ASSIGN_OR_RETURN(ExpressionPtr key, ParseExpression());
    MOED_RETURN_IF_ERROR(tokens_.ExpectOperator(":"));
    MOED_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    dict.entries.emplace_back(std::move(key), std::move(value));
  }
  tokens_.Take();
  return MakeExpression(line, std::move(dict));
}

bool ExpressionParser::IsTupleEnd(std::string_view end) const {
  const bool closed = tokens_.Is(TokenKind::kPrintEnd) || tokens_.Is(TokenKind::kBlockEnd) || tokens_.IsOperator(")");
  return closed || (!end.empty() && tokens_.IsName(end));
}

ExpressionParser::Result ExpressionParser::ParseTuple(bool with_conditional, std::string_view end) {
  const int line = tokens_.line();
  ListLiteral tuple{{}, true};
  bool commas = false;
  while (!IsTupleEnd(end)) {
    MOED_ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression(with_conditional));
    tuple.items.push_back(std::move(item));
    if (!tokens_.SkipOperator(",")) break;
    commas = true;
  }
  if (commas) return MakeExpression(line, std::move(tuple));
  if (tuple.items.empty()) return SyntaxError(line, "Expected an expression, got '", tokens_.Shown(), "'");
  return std::move(tuple.items[0]);
}

}  // namespace moed::chat
