#include "core/chat/lexer.h"

#include <algorithm>
#include <cctype>

#include "core/chat/error.h"
#include "core/chat/letter_case.h"
#include "core/chat/literals.h"
#include "core/chat/python_text.h"
#include "core/tokenizer/unicode.h"

namespace moed::chat {
namespace {

constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                           "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};

// Every line ends with "\n", and one at the very end goes.
std::string WithPlainLineEnds(std::string_view source) {
  std::string out;
  for (size_t i = 0; i < source.size(); ++i) {
    const bool pair = source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n';
    if (!pair) out += source[i] == '\r' ? '\n' : source[i];
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

int CountLines(std::string_view text) { return static_cast<int>(std::count(text.begin(), text.end(), '\n')); }

size_t SpaceBytes(std::string_view text) { return text.size() - Strip(text, std::nullopt, Side::kLeft).size(); }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(WithPlainLineEnds(source)) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (at_ < source_.size()) {
      const size_t tag = NextTag(at_);
      if (tag == std::string_view::npos) {
        AddData(Rest());
        at_ = source_.size();
        break;
      }
      MOED_RETURN_IF_ERROR(Tag(tag));
    }
    Add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view Rest() const { return std::string_view(source_).substr(at_); }
  bool StartsWith(std::string_view wanted) const { return Rest().starts_with(wanted); }
  char Now() const { return at_ < source_.size() ? source_[at_] : '\0'; }

  void Add(TokenKind kind, std::string text) { tokens_.push_back({kind, line_, std::move(text)}); }
  void AddData(std::string_view text) {
    if (!text.empty()) Add(TokenKind::kData, std::string(text));
  }
  void Advance(size_t bytes) {
    line_ += CountLines(Rest().substr(0, bytes));
    at_ += bytes;
  }

  size_t NextTag(size_t from) const {
    for (size_t at = source_.find('{', from); at != std::string::npos; at = source_.find('{', at + 1)) {
      if (at + 1 < source_.size() && (source_[at + 1] == '%' || source_[at + 1] == '{' || source_[at + 1] == '#')) return at;
    }
    return std::string_view::npos;
  }

  // What of the text before a tag stays. `strips_line`: white space between the line's start and the tag goes.
  std::string_view Kept(std::string_view text, char sign, bool strips_line) const {
    if (sign == '-') return Strip(text, std::nullopt, Side::kRight);
    if (sign == '+' || !strips_line) return text;
    const size_t newline = text.rfind('\n');
    const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    if (line == 0 && !line_starting_) return text;
    return Strip(text.substr(line), std::nullopt, Side::kLeft).empty() ? text.substr(0, line) : text;
  }

  static char SignOf(std::string_view after_tag) {
    const char sign = after_tag.empty() ? '\0' : after_tag[0];
    return sign == '-' || sign == '+' ? sign : '\0';
  }

  absl::Status Tag(size_t tag) {
    const std::string_view source = source_, text = source.substr(at_, tag - at_);
    const char kind = source[tag + 1];
    const char sign = SignOf(source.substr(tag + 2));
    AddData(Kept(text, sign, kind != '{'));
    Advance(text.size());
    Advance(2 + (sign != '\0' ? 1 : 0));
    line_starting_ = false;
    if (kind == '#') return Comment();
    if (kind == '%') {
      const size_t raw = RawBytes();
      if (raw > 0) return RawBlock(raw);
    }
    const bool print = kind == '{';
    Add(print ? TokenKind::kPrintBegin : TokenKind::kBlockBegin, "");
    return Inside(print);
  }

  // Past "#}", "-#}" and what they take with them.
  absl::Status Comment() {
    const size_t end = Rest().find("#}");
    if (end == std::string_view::npos) return SyntaxError(line_, "Missing end of comment tag");
    const char sign = end > 0 ? Rest()[end - 1] : '\0';
    Advance(end + 2);
    EndTag(sign == '-' || sign == '+' ? sign : '\0', true);
    return absl::OkStatus();
  }

  // After a tag's end: "-" takes all white space, otherwise a block's end takes one line end.
  void EndTag(char sign, bool block) {
    const size_t bytes = sign == '-' ? SpaceBytes(Rest()) : block && sign != '+' && Now() == '\n' ? 1 : 0;
    line_starting_ = bytes > 0 && source_[at_ + bytes - 1] == '\n';
    Advance(bytes);
  }

  // Of " raw %}" with its signs; 0 where the tag is another one.
  size_t RawBytes() const {
    size_t bytes = SpaceBytes(Rest());
    if (!Rest().substr(bytes).starts_with("raw")) return 0;
    bytes += 3;
    bytes += SpaceBytes(Rest().substr(bytes));
    const bool strips = Rest().substr(bytes).starts_with("-%}");
    if (!strips && !Rest().substr(bytes).starts_with("%}")) return 0;
    if (!strips) return bytes + 2;
    bytes += 3;
    return bytes + SpaceBytes(Rest().substr(bytes));
  }

  absl::Status RawBlock(size_t bytes) {
    Advance(bytes);
    line_starting_ = source_[at_ - 1] == '\n';
    for (size_t tag = Rest().find("{%"); tag != std::string_view::npos; tag = Rest().find("{%", tag + 1)) {
      std::string_view after = Rest().substr(tag + 2);
      const char sign = SignOf(after);
      if (sign != '\0') after.remove_prefix(1);
      after = Strip(after, std::nullopt, Side::kLeft);
      if (!after.starts_with("endraw")) continue;
      after = Strip(after.substr(6), std::nullopt, Side::kLeft);
      const char end_sign = SignOf(after);
      if (end_sign != '\0') after.remove_prefix(1);
      if (!after.starts_with("%}")) continue;
      AddData(Kept(Rest().substr(0, tag), sign, true));
      Advance(Rest().size() - after.size() + 2);
      EndTag(end_sign, true);
      return absl::OkStatus();
    }
    return SyntaxError(line_, "Missing end of raw directive");
  }

  // Tokens up to the end of the tag.
  absl::Status Inside(bool print) {
    const std::string_view end = print ? "}}" : "%}";
    std::string open;  // brackets that wait for their other half
    while (true) {
      Advance(SpaceBytes(Rest()));
      if (at_ >= source_.size()) return absl::OkStatus();  // the parser says what it misses
      const char sign = Now() == '-' || (Now() == '+' && !print) ? Now() : '\0';
      if (open.empty() && Rest().substr(sign != '\0' ? 1 : 0).starts_with(end)) {
        Add(print ? TokenKind::kPrintEnd : TokenKind::kBlockEnd, "");
        Advance(2 + (sign != '\0' ? 1 : 0));
        EndTag(sign, !print);
        return absl::OkStatus();
      }
      MOED_RETURN_IF_ERROR(One(open));
    }
  }

  absl::Status One(std::string& open) {
    if (const size_t bytes = FloatBytes(Rest(), at_ > 0 && source_[at_ - 1] == '.'); bytes > 0) {
      Add(TokenKind::kFloat, std::string(Rest().substr(0, bytes)));
      tokens_.back().number = ParseFloat(tokens_.back().text).value_or(0);
      Advance(bytes);
      return absl::OkStatus();
    }
    if (std::isdigit(static_cast<uint8_t>(Now())) != 0) return Whole();
    if (const size_t bytes = NameBytes(); bytes > 0) {
      if (!IsIdentifier(Rest().substr(0, bytes))) return SyntaxError(line_, "Invalid character in identifier");
      Add(TokenKind::kName, std::string(Rest().substr(0, bytes)));
      Advance(bytes);
      return absl::OkStatus();
    }
    if (Now() == '\'' || Now() == '"') {
      if (const size_t bytes = LiteralBytes(Rest()); bytes > 0) return Text(bytes);
    }
    return Operator(open);
  }

  absl::Status Whole() {
    const size_t bytes = IntegerBytes(Rest());
    const std::string digits(Rest().substr(0, bytes));
    const auto value = ParseInteger(digits, BaseOf(digits));
    if (!value) return SyntaxError(line_, "the number ", digits, " has more than 127 bits");
    Add(TokenKind::kInteger, digits);
    tokens_.back().integer = *value;
    Advance(bytes);
    return absl::OkStatus();
  }

  size_t NameBytes() const {
    size_t bytes = 0;
    while (at_ + bytes < source_.size()) {
      const std::string_view rest = Rest().substr(bytes);
      const std::string_view character = rest.substr(0, FirstCharacterBytes(rest));
      if (character != "_" && !IsAlphanumeric(character) && !IsIdentifier(StrCat("_", character))) break;
      bytes += character.size();
    }
    return bytes;
  }

  absl::Status Text(size_t bytes) {
    auto text = Unescaped(Rest().substr(1, bytes - 2));
    if (!text.ok()) return SyntaxError(line_, std::string(text.status().message()));
    Add(TokenKind::kText, *std::move(text));
    Advance(bytes);
    return absl::OkStatus();
  }

  absl::Status Operator(std::string& open) {
    const auto found =
        std::find_if(std::begin(kOperators), std::end(kOperators), [&](std::string_view op) { return StartsWith(op); });
    if (found == std::end(kOperators)) {
      return SyntaxError(line_, "unexpected char ", QuotedText(Rest().substr(0, FirstCharacterBytes(Rest()))));
    }
    constexpr std::string_view kOpening = "([{", kClosing = ")]}";
    if (kOpening.find(*found) != std::string_view::npos) open += kClosing[kOpening.find(*found)];
    if (kClosing.find(*found) != std::string_view::npos) {
      if (open.empty()) return SyntaxError(line_, "unexpected '", *found, "'");
      const std::string expected(1, open.back());
      open.pop_back();
      if (expected != *found) return SyntaxError(line_, "unexpected '", *found, "', expected '", expected, "'");
    }
    Add(TokenKind::kOperator, std::string(*found));
    Advance(found->size());
    return absl::OkStatus();
  }

  const std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // what was read last ended with a line end
  std::vector<Token> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source) { return Lexer(source).Run(); }

}  // namespace moed::chat
