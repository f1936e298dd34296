// What follows a value: dots, brackets, calls, filters and tests; and what is assigned to.
#include <optional>

#include "core/chat/expression_parser.h"
#include "core/chat/make_expression.h"
#include "core/chat/methods.h"
#include "core/chat/python_text.h"

namespace moed::chat {

ExpressionParser::Result ExpressionParser::Postfix(ExpressionPtr value) {
  while (true) {
    if (tokens_.IsOperator(".")) {
      MOED_ASSIGN_OR_RETURN(value, Dotted(std::move(value)));
    } else if (tokens_.IsOperator("[")) {
      MOED_ASSIGN_OR_RETURN(value, Bracketed(std::move(value)));
    } else if (tokens_.IsOperator("(")) {
      MOED_ASSIGN_OR_RETURN(value, CallOf(std::move(value)));
    } else {
      return value;
    }
  }
}

ExpressionParser::Result ExpressionParser::FiltersAndTests(ExpressionPtr value) {
  while (true) {
    if (tokens_.SkipOperator("|")) {
      MOED_ASSIGN_OR_RETURN(value, OneFilter(std::move(value)));
    } else if (tokens_.SkipName("is")) {
      MOED_ASSIGN_OR_RETURN(value, OneTest(std::move(value)));
    } else if (tokens_.IsOperator("(")) {
      MOED_ASSIGN_OR_RETURN(value, CallOf(std::move(value)));
    } else {
      return value;
    }
  }
}

ExpressionParser::Result ExpressionParser::Dotted(ExpressionPtr value) {
  const int line = tokens_.Take().line;
  const Token name = tokens_.Take();
  if (name.kind == TokenKind::kName) return MakeExpression(line, AttributeOfValue{std::move(value), name.text});
  if (name.kind != TokenKind::kInteger) return SyntaxError(name.line, "expected name or number");
  MOED_ASSIGN_OR_RETURN(ExpressionPtr key, MakeExpression(line, Literal{Value(name.integer)}));
  return MakeExpression(line, ItemOfValue{std::move(value), std::move(key)});
}

ExpressionParser::Result ExpressionParser::Bracketed(ExpressionPtr value) {
  const int line = tokens_.Take().line;
  if (tokens_.IsOperator("]")) return SubscriptTuple(line, std::move(value), nullptr);
  SliceOfValue slice;
  if (!tokens_.IsOperator(":")) {
    MOED_ASSIGN_OR_RETURN(slice.start, ParseExpression());
    if (tokens_.SkipOperator("]")) return MakeExpression(line, ItemOfValue{std::move(value), std::move(slice.start)});
    if (tokens_.IsOperator(",")) return SubscriptTuple(line, std::move(value), std::move(slice.start));
  }
  for (ExpressionPtr* bound : {&slice.stop, &slice.step}) {
    if (!tokens_.SkipOperator(":")) break;
    if (tokens_.IsOperator(":") || tokens_.IsOperator("]")) continue;
    MOED_ASSIGN_OR_RETURN(*bound, ParseExpression());
  }
  MOED_RETURN_IF_ERROR(tokens_.ExpectOperator("]"));
  slice.value = std::move(value);
  return MakeExpression(line, std::move(slice));
}

// value[a, b] and value[]: the tuple is the key.
ExpressionParser::Result ExpressionParser::SubscriptTuple(int line, ExpressionPtr value, ExpressionPtr first) {
  ListLiteral tuple{{}, true};
  if (first != nullptr) tuple.items.push_back(std::move(first));
  while (!tokens_.IsOperator("]")) {
    MOED_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    MOED_ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression());
    tuple.items.push_back(std::move(item));
  }
  tokens_.Take();
  MOED_ASSIGN_OR_RETURN(ExpressionPtr key, MakeExpression(line, std::move(tuple)));
  return MakeExpression(line, ItemOfValue{std::move(value), std::move(key)});
}

ExpressionParser::Result ExpressionParser::CallOf(ExpressionPtr value) {
  const int line = tokens_.line();
  const auto* attribute = std::get_if<AttributeOfValue>(&value->node);
  if (attribute != nullptr && IsMissingMethod(attribute->name)) {
    return SyntaxError(line, "the method '", attribute->name, "' is not supported");
  }
  MOED_ASSIGN_OR_RETURN(ArgumentList arguments, Arguments());
  return MakeExpression(line, CallOfValue{std::move(value), std::move(arguments)});
}

absl::StatusOr<ArgumentList> ExpressionParser::Arguments() {
  MOED_RETURN_IF_ERROR(tokens_.ExpectOperator("("));
  ArgumentList list;
  for (bool first = true; !tokens_.IsOperator(")"); first = false) {
    if (!first) {
      MOED_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      if (tokens_.IsOperator(")")) break;
    }
    MOED_RETURN_IF_ERROR(OneArgument(list));
  }
  tokens_.Take();
  return list;
}

absl::Status ExpressionParser::OneArgument(ArgumentList& list) {
  const int line = tokens_.line();
  const absl::Status misplaced = SyntaxError(line, "invalid syntax for function call expression");
  const bool starred = list.more_positional != nullptr || list.more_keywords != nullptr;
  if (tokens_.SkipOperator("*")) {
    if (starred) return misplaced;
    MOED_ASSIGN_OR_RETURN(list.more_positional, ParseExpression());
  } else if (tokens_.SkipOperator("**")) {
    if (list.more_keywords != nullptr) return misplaced;
    MOED_ASSIGN_OR_RETURN(list.more_keywords, ParseExpression());
  } else if (tokens_.Is(TokenKind::kName) && tokens_.ahead().kind == TokenKind::kOperator && tokens_.ahead().text == "=") {
    if (list.more_keywords != nullptr) return misplaced;
    std::string name = tokens_.Take().text;
    tokens_.Take();
    MOED_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    list.keywords.emplace_back(std::move(name), std::move(value));
  } else {
    if (starred || !list.keywords.empty()) return misplaced;
    MOED_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    list.positional.push_back(std::move(value));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ExpressionParser::DottedName() {
  MOED_ASSIGN_OR_RETURN(std::string name, tokens_.ExpectAnyName());
  while (tokens_.SkipOperator(".")) {
    MOED_ASSIGN_OR_RETURN(const std::string part, tokens_.ExpectAnyName());
    name += "." + part;
  }
  return name;
}

void ExpressionParser::AddUnknown(int line, std::string_view kind, std::string_view name) {
  unknown_.push_back({line, StrCat("No ", kind, " named ", QuotedText(name)), soft_});
}

ExpressionParser::Result ExpressionParser::OneFilter(ExpressionPtr value) {
  const int line = tokens_.line();
  MOED_ASSIGN_OR_RETURN(std::string name, DottedName());
  const Filter* filter = FindFilter(name);
  if (filter == nullptr && IsMissingFilter(name)) return SyntaxError(line, "the filter '", name, "' is not supported");
  if (filter == nullptr) AddUnknown(line, "filter", name);
  ArgumentList arguments;
  if (tokens_.IsOperator("(")) {
    MOED_ASSIGN_OR_RETURN(arguments, Arguments());
  }
  return MakeExpression(line, FilterOfValue{std::move(value), filter, std::move(name), std::move(arguments)});
}

ExpressionParser::Result ExpressionParser::ParseFilters(bool without_bar) {
  ExpressionPtr value;
  if (without_bar) {
    MOED_ASSIGN_OR_RETURN(value, OneFilter(nullptr));
  }
  while (tokens_.SkipOperator("|")) {
    MOED_ASSIGN_OR_RETURN(value, OneFilter(std::move(value)));
  }
  return value;
}

ExpressionParser::Result ExpressionParser::OneTest(ExpressionPtr value) {
  const int line = tokens_.line();
  const bool negated = tokens_.SkipName("not");
  MOED_ASSIGN_OR_RETURN(std::string name, DottedName());
  const Test* test = FindTest(name);
  if (test == nullptr) AddUnknown(line, "test", name);
  ArgumentList arguments;
  const TokenKind kind = tokens_.now().kind;
  const bool ends = tokens_.IsName("else") || tokens_.IsName("or") || tokens_.IsName("and");
  const bool begins_value = kind == TokenKind::kName || kind == TokenKind::kText || kind == TokenKind::kInteger ||
                            kind == TokenKind::kFloat || tokens_.IsOperator("[") || tokens_.IsOperator("{");
  if (tokens_.IsOperator("(")) {
    MOED_ASSIGN_OR_RETURN(arguments, Arguments());
  } else if (begins_value && !ends) {
    if (tokens_.IsName("is")) return SyntaxError(line, "You cannot chain multiple tests with is");
    MOED_ASSIGN_OR_RETURN(ExpressionPtr argument, Primary());
    MOED_ASSIGN_OR_RETURN(argument, Postfix(std::move(argument)));
    arguments.positional.push_back(std::move(argument));
  }
  MOED_ASSIGN_OR_RETURN(ExpressionPtr tested,
                        MakeExpression(line, TestOfValue{std::move(value), test, std::move(name), std::move(arguments)}));
  if (!negated) return tested;
  return MakeExpression(line, Unary{UnaryOperator::kNot, std::move(tested)});
}

absl::StatusOr<Target> ExpressionParser::OneTarget(bool with_attributes) {
  const int line = tokens_.line();
  Target target;
  if (tokens_.SkipOperator("(")) {
    MOED_ASSIGN_OR_RETURN(target, ParseTarget(with_attributes));
    MOED_RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
    return target;
  }
  if (!tokens_.Is(TokenKind::kName)) return SyntaxError(line, "can't assign to '", tokens_.Shown(), "'");
  const std::string name = tokens_.Take().text;
  for (const char* constant : {"true", "false", "none", "True", "False", "None"}) {
    if (name == constant) return SyntaxError(line, "can't assign to 'const'");
  }
  target.name = names_.Id(name);
  if (!with_attributes || !tokens_.SkipOperator(".")) return target;
  MOED_ASSIGN_OR_RETURN(target.attribute, tokens_.ExpectAnyName());
  return target;
}

absl::StatusOr<Target> ExpressionParser::ParseTarget(bool with_attributes, std::string_view end) {
  const Nesting nesting(nested_);
  if (nested_ > kMostNested)
    return SyntaxError(tokens_.line(), "a target of more than ", kMostNested, " brackets within each other");
  Target tuple;
  while (!IsTupleEnd(end)) {
    MOED_ASSIGN_OR_RETURN(Target part, OneTarget(with_attributes));
    tuple.parts.push_back(std::move(part));
    if (!tokens_.SkipOperator(",")) break;
    tuple.tuple = true;
  }
  if (tuple.tuple) return tuple;
  if (tuple.parts.empty()) return SyntaxError(tokens_.line(), "Expected an expression, got '", tokens_.Shown(), "'");
  return std::move(tuple.parts[0]);
}

}  // namespace moed::chat
