// What a template is once it is parsed.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/chat/arithmetic.h"
#include "core/chat/filters.h"
#include "core/chat/tests.h"
#include "core/chat/value.h"

namespace moed::chat {

using NameId = int;  // of a variable: its place among all names of the template

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;
struct Statement;
using Body = std::vector<Statement>;

struct ArgumentList {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> keywords;
  ExpressionPtr more_positional, more_keywords;  // *these, **those; null where there are none
};

struct Literal {
  Value value;
};
struct Name {
  NameId id;
};
struct ListLiteral {
  std::vector<ExpressionPtr> items;
  bool tuple;
};
struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
struct AttributeOfValue {
  ExpressionPtr value;
  std::string name;
};
struct ItemOfValue {
  ExpressionPtr value, key;
};
struct SliceOfValue {
  ExpressionPtr value, start, stop, step;  // bounds may be null
};
struct CallOfValue {
  ExpressionPtr value;
  ArgumentList arguments;
};
struct FilterOfValue {
  ExpressionPtr value;   // null: what a block captured
  const Filter* filter;  // null: no filter has this name, which is an error once it is reached
  std::string name;
  ArgumentList arguments;
};
struct TestOfValue {
  ExpressionPtr value;
  const Test* test;  // null as above
  std::string name;
  ArgumentList arguments;
};
enum class UnaryOperator : uint8_t { kNegate, kPositive, kNot };
struct Unary {
  UnaryOperator op;
  ExpressionPtr value;
};
struct Binary {
  Operator op;
  ExpressionPtr left, right;
};
enum class Comparator : uint8_t { kLess, kLessOrEqual, kGreater, kGreaterOrEqual, kEqual, kNotEqual, kIn, kNotIn };
struct Compare {
  ExpressionPtr first;
  std::vector<std::pair<Comparator, ExpressionPtr>> others;  // a < b < c
};
struct Logical {
  bool all;  // and; else or
  ExpressionPtr left, right;
};
struct Concat {
  std::vector<ExpressionPtr> parts;
};
struct Conditional {
  ExpressionPtr test, then, otherwise;  // otherwise may be null
  int line;
};

struct Expression {
  int line;
  std::variant<Literal, Name, ListLiteral, DictLiteral, AttributeOfValue, ItemOfValue, SliceOfValue, CallOfValue, FilterOfValue,
               TestOfValue, Unary, Binary, Compare, Logical, Concat, Conditional>
      node;
  int depth;  // of expressions within each other
};

// What {% set %} and {% for %} assign to: a name, a namespace's attribute, or several of these.
struct Target {
  NameId name = 0;
  std::optional<std::string> attribute;
  std::vector<Target> parts;
  bool tuple = false;
};

struct Parameter {
  NameId name;
  ExpressionPtr otherwise;  // may be null
};
struct MacroSyntax {
  std::string name;  // "" of what a {% call %} hands over
  std::vector<Parameter> parameters;
  std::vector<std::string> parameter_names;
  Body body;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};

struct PlainText {
  Value text;
};
struct Print {
  std::vector<ExpressionPtr> values;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};
struct For {
  Target target;
  ExpressionPtr items, test;  // test may be null
  bool recursive;
  Body body, otherwise;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  ExpressionPtr filter;  // may be null
  Body body;
};
struct MacroStatement {
  NameId name;
  std::unique_ptr<const MacroSyntax> macro;
};
struct CallBlock {
  ExpressionPtr call;  // a CallOfValue
  std::unique_ptr<const MacroSyntax> caller;
};
struct FilterBlock {
  ExpressionPtr filter;
  Body body;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> values;
  Body body;
};
// {% generation %}: its own scope, nothing else.
struct Generation {
  Body body;
};
struct Break {};
struct Continue {};

struct Statement {
  int line;
  std::variant<PlainText, Print, If, For, Set, SetBlock, MacroStatement, CallBlock, FilterBlock, With, Generation, Break,
               Continue>
      node;
};

// A filter or test that nobody knows. Within {% if %} and "a if b" it fails only where it is reached, as in Jinja.
struct UnknownName {
  int line;
  std::string words;
  bool late;
};

struct Syntax {
  Body body;
  std::vector<std::string> names;    // by NameId
  std::vector<UnknownName> unknown;  // all of them late
};

// Names with a meaning of their own.
enum SpecialName : NameId { kLoopName, kCallerName, kVarargsName, kKwargsName, kSpecialNames };

}  // namespace moed::chat
