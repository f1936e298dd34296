#include "core/chat/parser.h"

#include <algorithm>
#include <initializer_list>

#include "core/chat/expression_parser.h"
#include "core/chat/make_expression.h"
#include "core/chat/python_text.h"
#include "core/chat/token_stream.h"
#include "core/tokenizer/unicode.h"

namespace moed::chat {
namespace {

constexpr int kMostNestedBlocks = 60;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)), expressions_(tokens_, names_) {}

  absl::StatusOr<Syntax> Run() {
    Syntax syntax;
    MOED_ASSIGN_OR_RETURN(syntax.body, ParseBody({}));
    for (const UnknownName& unknown : expressions_.unknown()) {
      if (!unknown.late) return SyntaxError(unknown.line, unknown.words, ".");
    }
    syntax.unknown = std::move(expressions_.unknown());
    syntax.names = names_.TakeNames();
    return syntax;
  }

 private:
  using Ends = std::initializer_list<std::string_view>;
  using Node = decltype(Statement::node);
  using Result = absl::StatusOr<Node>;
  struct Tag {
    std::string_view name;
    Result (Parser::*parse)();
  };

  // Up to a block that begins with one of `ends`, whose name is next; without ends up to the template's end.
  absl::StatusOr<Body> ParseBody(Ends ends) {
    Body body;
    while (true) {
      const int line = tokens_.line();
      if (tokens_.Is(TokenKind::kEnd)) {
        if (ends.size() == 0) return body;
        return Ended(ends);
      }
      if (tokens_.Is(TokenKind::kData)) {
        body.push_back({line, PlainText{MakeText(tokens_.Take().text)}});
        continue;
      }
      if (tokens_.Is(TokenKind::kPrintBegin)) {
        tokens_.Take();
        Print print;
        MOED_ASSIGN_OR_RETURN(ExpressionPtr value, expressions_.ParseTuple(true));
        print.values.push_back(std::move(value));
        MOED_RETURN_IF_ERROR(tokens_.Expect(TokenKind::kPrintEnd));
        body.push_back({line, std::move(print)});
        continue;
      }
      MOED_RETURN_IF_ERROR(tokens_.Expect(TokenKind::kBlockBegin));
      if (std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return tokens_.IsName(end); })) return body;
      MOED_ASSIGN_OR_RETURN(Node node, ParseStatement());
      MOED_RETURN_IF_ERROR(tokens_.Expect(TokenKind::kBlockEnd));
      body.push_back({line, std::move(node)});
    }
  }

  // A block's body: from the end of its tag to the name that ends it.
  absl::StatusOr<Body> ParseBlock(Ends ends) {
    tokens_.SkipOperator(":");
    MOED_RETURN_IF_ERROR(tokens_.Expect(TokenKind::kBlockEnd));
    if (++blocks_ > kMostNestedBlocks) {
      return SyntaxError(tokens_.line(), "more than ", kMostNestedBlocks, " blocks within each other");
    }
    MOED_ASSIGN_OR_RETURN(Body body, ParseBody(ends));
    --blocks_;
    return body;
  }

  absl::Status Ended(Ends ends) const {
    return SyntaxError(tokens_.line(), "Unexpected end of template. Looking for the tags ",
                       JoinNames(ends, [](std::string_view end) { return QuotedText(end); }), ".");
  }

  Result ParseStatement() {
    static constexpr Tag kTags[] = {
        {"break", &Parser::ParseBreak},
        {"call", &Parser::ParseCall},
        {"continue", &Parser::ParseContinue},
        {"filter", &Parser::ParseFilterBlock},
        {"for", &Parser::ParseFor},
        {"generation", &Parser::ParseGeneration},
        {"if", &Parser::ParseIf},
        {"macro", &Parser::ParseMacro},
        {"print", &Parser::ParsePrint},
        {"set", &Parser::ParseSet},
        {"with", &Parser::ParseWith},
    };
    const Token token = tokens_.now();
    if (token.kind != TokenKind::kName) return SyntaxError(token.line, "tag name expected");
    for (const Tag& tag : kTags) {
      if (tag.name != token.text) continue;
      tokens_.Take();
      return (this->*tag.parse)();
    }
    for (const char* missing : {"autoescape", "block", "extends", "from", "import", "include"}) {
      if (token.text == missing) return SyntaxError(token.line, "the tag '", missing, "' is not supported");
    }
    const bool misplaced = token.text.starts_with("end") || token.text == "else" || token.text == "elif";
    return SyntaxError(token.line, misplaced ? "Unexpected tag " : "Encountered unknown tag ", QuotedText(token.text), ".");
  }

  Result ParseIf() {
    const ExpressionParser::SoftPlace soft(expressions_, true);
    If node;
    while (true) {
      MOED_ASSIGN_OR_RETURN(ExpressionPtr test, expressions_.ParseTuple(false));
      MOED_ASSIGN_OR_RETURN(Body body, ParseBlock({"elif", "else", "endif"}));
      node.branches.emplace_back(std::move(test), std::move(body));
      const std::string end = tokens_.Take().text;
      if (end == "elif") continue;
      if (end == "else") {
        MOED_ASSIGN_OR_RETURN(node.otherwise, ParseBlock({"endif"}));
        tokens_.Take();
      }
      return node;
    }
  }

  Result ParseFor() {
    For node;
    MOED_ASSIGN_OR_RETURN(node.target, expressions_.ParseTarget(false, "in"));
    if (Assigns(node.target, kLoopName)) {
      return SyntaxError(tokens_.line(), "Can't assign to special loop variable in for-loop target");
    }
    MOED_RETURN_IF_ERROR(tokens_.ExpectName("in"));
    MOED_ASSIGN_OR_RETURN(node.items, expressions_.ParseTuple(false, "recursive"));
    const ExpressionParser::SoftPlace hard(expressions_, false);
    if (tokens_.SkipName("if")) {
      MOED_ASSIGN_OR_RETURN(node.test, expressions_.ParseExpression());
    }
    node.recursive = tokens_.SkipName("recursive");
    ++loops_;
    MOED_ASSIGN_OR_RETURN(node.body, ParseBlock({"endfor", "else"}));
    --loops_;
    if (tokens_.Take().text == "else") {
      MOED_ASSIGN_OR_RETURN(node.otherwise, ParseBlock({"endfor"}));
      tokens_.Take();
    }
    return node;
  }

  static bool Assigns(const Target& target, NameId name) {
    if (!target.tuple) return target.name == name && !target.attribute;
    return std::any_of(target.parts.begin(), target.parts.end(), [name](const Target& part) { return Assigns(part, name); });
  }

  Result ParseSet() {
    MOED_ASSIGN_OR_RETURN(Target target, expressions_.ParseTarget(true));
    if (tokens_.SkipOperator("=")) {
      MOED_ASSIGN_OR_RETURN(ExpressionPtr value, expressions_.ParseTuple(true));
      return Set{std::move(target), std::move(value)};
    }
    SetBlock node;
    node.target = std::move(target);
    const ExpressionParser::SoftPlace hard(expressions_, false);
    MOED_ASSIGN_OR_RETURN(node.filter, expressions_.ParseFilters(false));
    MOED_ASSIGN_OR_RETURN(node.body, ParseBlock({"endset"}));
    tokens_.Take();
    return node;
  }

  absl::Status ParseParameters(MacroSyntax& macro) {
    MOED_RETURN_IF_ERROR(tokens_.ExpectOperator("("));
    while (!tokens_.IsOperator(")")) {
      if (!macro.parameters.empty()) MOED_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      if (tokens_.IsOperator(")")) break;
      Parameter parameter;
      MOED_ASSIGN_OR_RETURN(const std::string name, tokens_.ExpectAnyName());
      parameter.name = names_.Id(name);
      if (tokens_.SkipOperator("=")) {
        MOED_ASSIGN_OR_RETURN(parameter.otherwise, expressions_.ParseExpression());
      } else if (!macro.parameters.empty() && macro.parameters.back().otherwise != nullptr) {
        return SyntaxError(tokens_.line(), "non-default argument follows default argument");
      }
      macro.parameters.push_back(std::move(parameter));
      macro.parameter_names.push_back(name);
    }
    return tokens_.ExpectOperator(")");
  }

  // The body of a macro, or of a call block, which is one without a name.
  absl::Status ParseMacroBody(MacroSyntax& macro, std::string_view end) {
    const ExpressionParser::SoftPlace hard(expressions_, false);
    const int loops = std::exchange(loops_, 0);
    const auto outside = std::exchange(expressions_.uses(), {});
    MOED_ASSIGN_OR_RETURN(macro.body, ParseBlock({end}));
    tokens_.Take();
    loops_ = loops;
    auto& inside = expressions_.uses();
    const auto is_parameter = [&](const char* name) {
      return std::find(macro.parameter_names.begin(), macro.parameter_names.end(), name) != macro.parameter_names.end();
    };
    macro.uses_caller = inside.caller && !is_parameter("caller");
    macro.uses_varargs = inside.varargs && !is_parameter("varargs");
    macro.uses_kwargs = inside.kwargs && !is_parameter("kwargs");
    inside = {inside.caller || outside.caller, inside.varargs || outside.varargs, inside.kwargs || outside.kwargs};
    return absl::OkStatus();
  }

  Result ParseMacro() {
    auto macro = std::make_unique<MacroSyntax>();
    MOED_ASSIGN_OR_RETURN(macro->name, tokens_.ExpectAnyName());
    MOED_RETURN_IF_ERROR(ParseParameters(*macro));
    MOED_RETURN_IF_ERROR(ParseMacroBody(*macro, "endmacro"));
    const NameId name = names_.Id(macro->name);
    return MacroStatement{name, std::move(macro)};
  }

  Result ParseCall() {
    auto caller = std::make_unique<MacroSyntax>();
    const int line = tokens_.line();
    if (tokens_.IsOperator("(")) MOED_RETURN_IF_ERROR(ParseParameters(*caller));
    MOED_ASSIGN_OR_RETURN(ExpressionPtr call, expressions_.ParseExpression());
    if (!std::holds_alternative<CallOfValue>(call->node)) return SyntaxError(line, "expected call");
    MOED_RETURN_IF_ERROR(ParseMacroBody(*caller, "endcall"));
    return CallBlock{std::move(call), std::move(caller)};
  }

  Result ParseFilterBlock() {
    const ExpressionParser::SoftPlace hard(expressions_, false);
    FilterBlock node;
    MOED_ASSIGN_OR_RETURN(node.filter, expressions_.ParseFilters(true));
    MOED_ASSIGN_OR_RETURN(node.body, ParseBlock({"endfilter"}));
    tokens_.Take();
    return node;
  }

  Result ParseWith() {
    const ExpressionParser::SoftPlace hard(expressions_, false);
    With node;
    while (!tokens_.Is(TokenKind::kBlockEnd)) {
      if (!node.values.empty()) MOED_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      MOED_ASSIGN_OR_RETURN(Target target, expressions_.ParseTarget(false));
      MOED_RETURN_IF_ERROR(tokens_.ExpectOperator("="));
      MOED_ASSIGN_OR_RETURN(ExpressionPtr value, expressions_.ParseExpression());
      node.values.emplace_back(std::move(target), std::move(value));
    }
    MOED_ASSIGN_OR_RETURN(node.body, ParseBlock({"endwith"}));
    tokens_.Take();
    return node;
  }

  Result ParseGeneration() {
    const ExpressionParser::SoftPlace hard(expressions_, false);
    const int loops = std::exchange(loops_, 0);
    MOED_ASSIGN_OR_RETURN(Body body, ParseBlock({"endgeneration"}));
    loops_ = loops;
    tokens_.Take();
    return Generation{std::move(body)};
  }

  Result ParsePrint() {
    Print node;
    while (!tokens_.Is(TokenKind::kBlockEnd)) {
      if (!node.values.empty()) MOED_RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      MOED_ASSIGN_OR_RETURN(ExpressionPtr value, expressions_.ParseExpression());
      node.values.push_back(std::move(value));
    }
    return node;
  }

  Result ParseBreak() {
    if (loops_ == 0) return SyntaxError(tokens_.line(), "'break' outside of a loop");
    return Break{};
  }
  Result ParseContinue() {
    if (loops_ == 0) return SyntaxError(tokens_.line(), "'continue' outside of a loop");
    return Continue{};
  }

  TokenStream tokens_;
  NameTable names_;
  ExpressionParser expressions_;
  int blocks_ = 0;
  int loops_ = 0;  // around what is parsed, within the same macro
};

}  // namespace

absl::StatusOr<Syntax> Parse(std::string_view source) {
  if (const auto bad = FirstInvalidByte(source)) return InvalidArgument("the chat template is not UTF-8 at byte ", *bad);
  MOED_ASSIGN_OR_RETURN(auto tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace moed::chat
