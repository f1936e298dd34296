// Tokens one by one, and the names that were met.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/chat/error.h"
#include "core/chat/lexer.h"
#include "core/chat/syntax.h"

namespace moed::chat {

class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  int line() const { return now().line; }
  Token Take() {
    Token token = now();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }

  bool Is(TokenKind kind) const { return now().kind == kind; }
  bool IsOperator(std::string_view op) const { return Is(TokenKind::kOperator) && now().text == op; }
  bool IsName(std::string_view name) const { return Is(TokenKind::kName) && now().text == name; }
  bool SkipOperator(std::string_view op) { return IsOperator(op) && Skip(); }
  bool SkipName(std::string_view name) { return IsName(name) && Skip(); }

  absl::Status ExpectOperator(std::string_view op) {
    if (!SkipOperator(op)) return Unexpected(op);
    return absl::OkStatus();
  }
  absl::Status ExpectName(std::string_view name) {
    if (!SkipName(name)) return Unexpected(name);
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> ExpectAnyName() {
    if (!Is(TokenKind::kName)) return Unexpected("name");
    return Take().text;
  }
  absl::Status Expect(TokenKind kind) {
    if (!Is(kind)) return Unexpected(Described(kind));
    Skip();
    return absl::OkStatus();
  }
  absl::Status Unexpected(std::string_view expected) const {
    if (Is(TokenKind::kEnd)) return SyntaxError(line(), "unexpected end of template, expected '", expected, "'.");
    return SyntaxError(line(), "expected token '", expected, "', got '", Shown(), "'");
  }
  std::string Shown() const {
    const bool spelled = Is(TokenKind::kName) || Is(TokenKind::kOperator);
    return spelled ? now().text : std::string(Described(now().kind));
  }

 private:
  static std::string_view Described(TokenKind kind) {
    constexpr std::string_view kWords[] = {"template data / text",
                                           "begin of statement block",
                                           "end of statement block",
                                           "begin of print statement",
                                           "end of print statement",
                                           "name",
                                           "string",
                                           "integer",
                                           "float",
                                           "operator",
                                           "end of template"};
    return kWords[static_cast<int>(kind)];
  }
  bool Skip() {
    Take();
    return true;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
};

// Gives every name of a template its number.
class NameTable {
 public:
  NameTable() {
    for (const char* name : {"loop", "caller", "varargs", "kwargs"}) Id(name);
  }
  NameId Id(std::string_view name) {
    const auto [found, is_new] = ids_.try_emplace(std::string(name), static_cast<NameId>(names_.size()));
    if (is_new) names_.emplace_back(name);
    return found->second;
  }
  std::vector<std::string> TakeNames() { return std::move(names_); }

 private:
  std::map<std::string, NameId> ids_;
  std::vector<std::string> names_;
};

}  // namespace moed::chat
