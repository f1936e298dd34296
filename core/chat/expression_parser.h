// The expressions of a template: precedence as in Jinja.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/chat/syntax.h"
#include "core/chat/token_stream.h"

namespace moed::chat {

class ExpressionParser {
 public:
  ExpressionParser(TokenStream& tokens, NameTable& names) : tokens_(tokens), names_(names) {}

  using Result = absl::StatusOr<ExpressionPtr>;
  Result ParseExpression(bool with_conditional = true);
  // Several with commas between them are a tuple. It ends before `end` too, a name.
  Result ParseTuple(bool with_conditional, std::string_view end = "");
  absl::StatusOr<Target> ParseTarget(bool with_attributes, std::string_view end = "");
  // "|a(b)|c", or "a(b)|c" without the first bar; on what a block captured.
  Result ParseFilters(bool without_bar);

  // Whether names that nobody knows are errors only once they are reached.
  class SoftPlace {
   public:
    SoftPlace(ExpressionParser& parser, bool soft) : parser_(parser), before_(parser.soft_) { parser.soft_ = soft; }
    ~SoftPlace() { parser_.soft_ = before_; }

   private:
    ExpressionParser& parser_;
    const bool before_;
  };
  std::vector<UnknownName>& unknown() { return unknown_; }
  // Special names that were used since, for macros.
  struct Uses {
    bool caller = false, varargs = false, kwargs = false;
  };
  Uses& uses() { return uses_; }

 private:
  Result ParseConditional();
  Result Or();
  Result And();
  Result Not();
  Result Comparison();
  Result Sum();
  Result Concatenation();
  Result Product();
  Result Power();
  Result UnaryOperation(bool with_filters);
  Result Primary();
  Result NameOrConstant();
  Result Texts();
  Result ParseList();
  Result ParseDict();
  Result Postfix(ExpressionPtr value);
  Result FiltersAndTests(ExpressionPtr value);
  Result Dotted(ExpressionPtr value);
  Result Bracketed(ExpressionPtr value);
  Result SubscriptTuple(int line, ExpressionPtr value, ExpressionPtr first);
  Result CallOf(ExpressionPtr value);
  Result OneFilter(ExpressionPtr value);
  Result OneTest(ExpressionPtr value);
  absl::StatusOr<ArgumentList> Arguments();
  absl::Status OneArgument(ArgumentList& list);
  absl::StatusOr<std::string> DottedName();
  absl::StatusOr<Target> OneTarget(bool with_attributes);
  void AddUnknown(int line, std::string_view kind, std::string_view name);
  bool IsTupleEnd(std::string_view end) const;

  static constexpr int kMostNested = 60;  // brackets and signs within each other
  class Nesting {
   public:
    explicit Nesting(int& nested) : nested_(++nested) {}
    ~Nesting() { --nested_; }

   private:
    int& nested_;
  };

  TokenStream& tokens_;
  NameTable& names_;
  bool soft_ = false;
  int nested_ = 0;
  Uses uses_;
  std::vector<UnknownName> unknown_;
};

}  // namespace moed::chat
