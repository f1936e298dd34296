#include "core/grammar/regex_syntax.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/status.h"
#include "core/base/utf8.h"
#include "core/grammar/program.h"

namespace moed::grammar {
namespace {

constexpr int kMostDepth = 64;  // of groups
constexpr int kMostRepeats = 10'000;

CharacterSet One(char32_t character) { return CharacterSet({{character, character}}); }
CharacterSet Digits() { return CharacterSet({{'0', '9'}}); }
CharacterSet Word() { return CharacterSet({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}); }
CharacterSet Space(Dialect dialect) {
  if (dialect == Dialect::kAscii) return CharacterSet({{'\t', '\r'}, {' ', ' '}});
  return CharacterSet({{'\t', '\r'},
                       {' ', ' '},
                       {0xa0, 0xa0},
                       {0x1680, 0x1680},
                       {0x2000, 0x200a},
                       {0x2028, 0x2029},
                       {0x202f, 0x202f},
                       {0x205f, 0x205f},
                       {0x3000, 0x3000},
                       {0xfeff, 0xfeff}});
}
CharacterSet LineEnds(Dialect dialect) {
  return dialect == Dialect::kAscii ? One('\n') : CharacterSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});
}

// Whether it matches the empty text alone, and says so: what is built of any other has instructions, which are counted.
bool IsEmpty(const RegexNode& node) {
  if (node.kind == RegexNode::Kind::kCharacter) return false;
  if (node.kind == RegexNode::Kind::kRepeat && node.most == 0) return true;
  return std::all_of(node.parts.begin(), node.parts.end(), IsEmpty);
}

class Parser {
 public:
  Parser(std::string_view pattern, Dialect dialect) : pattern_(pattern), dialect_(dialect) {}
  absl::StatusOr<std::vector<Alternative>> Whole();

 private:
  template <class... Parts>
  absl::Status Refused(size_t at, const Parts&... parts) const {
    return InvalidArgument("at byte ", at, ": ", parts...);
  }
  bool AtEnd() const { return at_ >= pattern_.size(); }
  bool Take(std::string_view text) {
    if (pattern_.substr(at_, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }
  char32_t TakeCharacter();
  absl::StatusOr<RegexNode> Sequence(int depth, Alternative* top);
  absl::StatusOr<RegexNode> Atom(int depth);
  absl::StatusOr<RegexNode> Group(int depth);
  absl::StatusOr<RegexNode> Repeated(RegexNode atom);
  absl::StatusOr<std::optional<std::pair<int, int>>> Quantifier();
  absl::StatusOr<std::optional<std::pair<int, int>>> Braces();
  absl::StatusOr<CharacterSet> Escape(bool in_class);
  absl::StatusOr<char32_t> Hex(int digits);
  absl::StatusOr<char32_t> CodeUnits();
  absl::StatusOr<CharacterSet> Class();
  absl::StatusOr<CharacterSet> ClassItem();

  const std::string_view pattern_;
  const Dialect dialect_;
  size_t at_ = 0;
};

// The pattern is UTF-8.
char32_t Parser::TakeCharacter() {
  const auto lead = static_cast<uint8_t>(pattern_[at_++]);
  const int more = lead < 0x80 ? 0 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
  char32_t character = more == 0 ? lead : lead & (0x3f >> more);
  for (int i = 0; i < more; ++i) character = character << 6 | (static_cast<uint8_t>(pattern_[at_++]) & 0x3f);
  return character;
}

absl::StatusOr<std::vector<Alternative>> Parser::Whole() {
  if (!IsValidUtf8(pattern_)) return Refused(ValidUtf8Prefix(pattern_), "no UTF-8");
  std::vector<Alternative> alternatives;
  do {
    Alternative one;
    one.from_begin = Take("^");
    MOED_ASSIGN_OR_RETURN(one.sequence, Sequence(0, &one));
    alternatives.push_back(std::move(one));
  } while (Take("|"));
  if (!AtEnd()) return Refused(at_, "')' without '('");
  return alternatives;
}

// Up to "|", ")" or the end. `top`: the alternative of the whole pattern that this is, which may end with "$".
absl::StatusOr<RegexNode> Parser::Sequence(int depth, Alternative* top) {
  RegexNode sequence;
  while (!AtEnd() && pattern_[at_] != '|' && pattern_[at_] != ')') {
    const size_t begin = at_;
    if (Take("$")) {
      if (top == nullptr || !(AtEnd() || pattern_[at_] == '|'))
        return Refused(begin, "'$' is supported at an alternative's end only");
      top->to_end = true;
      break;
    }
    MOED_ASSIGN_OR_RETURN(RegexNode atom, Atom(depth));
    MOED_ASSIGN_OR_RETURN(atom, Repeated(std::move(atom)));
    if (!IsEmpty(atom)) sequence.parts.push_back(std::move(atom));
  }
  return sequence;
}

absl::StatusOr<RegexNode> Parser::Atom(int depth) {
  const size_t begin = at_;
  RegexNode node;
  node.kind = RegexNode::Kind::kCharacter;
  const char32_t first = TakeCharacter();
  switch (first) {
    case '(':
      return Group(depth + 1);
    case '[': {
      MOED_ASSIGN_OR_RETURN(node.characters, Class());
      return node;
    }
    case '\\': {
      MOED_ASSIGN_OR_RETURN(node.characters, Escape(false));
      return node;
    }
    case '.':
      node.characters = LineEnds(dialect_).Negated();
      return node;
    case '^':
      return Refused(begin, "'^' is supported at an alternative's begin only");
    case '*':
    case '+':
    case '?':
    case '{':
      return Refused(begin, "nothing to repeat");
    default:
      node.characters = One(first);
      return node;
  }
}

absl::StatusOr<RegexNode> Parser::Group(int depth) {
  const size_t begin = at_ - 1;
  if (depth > kMostDepth) return Refused(begin, "groups more than ", kMostDepth, " deep");
  if (!Take("?:") && !AtEnd() && pattern_[at_] == '?') {
    return Refused(begin, "'", pattern_.substr(begin, 3), "' is not supported: no lookaround, flags or names");
  }
  RegexNode group;
  group.kind = RegexNode::Kind::kAlternatives;
  do {
    MOED_ASSIGN_OR_RETURN(RegexNode sequence, Sequence(depth, nullptr));
    group.parts.push_back(std::move(sequence));
  } while (Take("|"));
  if (!Take(")")) return Refused(begin, "'(' without ')'");
  return group;
}

absl::StatusOr<RegexNode> Parser::Repeated(RegexNode atom) {
  for (int times = 0;; ++times) {
    const size_t begin = at_;
    MOED_ASSIGN_OR_RETURN(const auto quantifier, Quantifier());
    if (!quantifier) return atom;
    if (times > 0) return Refused(begin, "a repetition of a repetition");
    RegexNode repeat;
    repeat.kind = RegexNode::Kind::kRepeat;
    repeat.parts.push_back(std::move(atom));
    std::tie(repeat.least, repeat.most) = *quantifier;
    atom = std::move(repeat);
    if (!Take("?") && Take("+")) return Refused(begin, "possessive repetition is not supported");
  }
}

absl::StatusOr<std::optional<std::pair<int, int>>> Parser::Quantifier() {
  if (Take("*")) return std::pair(0, ProgramBuilder::kNoMost);
  if (Take("+")) return std::pair(1, ProgramBuilder::kNoMost);
  if (Take("?")) return std::pair(0, 1);
  if (Take("{")) return Braces();
  return std::nullopt;
}

absl::StatusOr<std::optional<std::pair<int, int>>> Parser::Braces() {
  const size_t begin = at_ - 1;
  const auto number = [this]() -> std::optional<int> {
    std::optional<int> value;
    while (!AtEnd() && pattern_[at_] >= '0' && pattern_[at_] <= '9' && value.value_or(0) <= kMostRepeats) {
      value = value.value_or(0) * 10 + (pattern_[at_++] - '0');
    }
    return value;
  };
  const std::optional<int> least = number();
  std::optional<int> most = least;
  if (Take(",")) most = number();
  const int shown = most.value_or(least.value_or(0));
  if (!least || !Take("}") || shown < *least) return Refused(begin, "no repetition {m}, {m,} or {m,n}");
  if (shown > kMostRepeats) return Refused(begin, "more than ", kMostRepeats, " repetitions");
  return std::pair(*least, most.value_or(ProgramBuilder::kNoMost));
}

absl::StatusOr<CharacterSet> Parser::Escape(bool in_class) {
  const size_t begin = at_ - 1;
  if (AtEnd()) return Refused(begin, "'\\' at the end");
  const char32_t what = TakeCharacter();
  constexpr std::pair<char32_t, char32_t> kControls[] = {{'n', '\n'}, {'t', '\t'}, {'r', '\r'},
                                                         {'f', '\f'}, {'v', '\v'}, {'0', 0}};
  for (const auto& [letter, character] : kControls) {
    if (what == letter) return One(character);
  }
  if (what == 'd' || what == 'D') return what == 'd' ? Digits() : Digits().Negated();
  if (what == 'w' || what == 'W') return what == 'w' ? Word() : Word().Negated();
  if (what == 's' || what == 'S') return what == 's' ? Space(dialect_) : Space(dialect_).Negated();
  if (what == 'b' && in_class) return One('\b');
  if (what == 'x' || what == 'u') {
    MOED_ASSIGN_OR_RETURN(const char32_t character, what == 'x' ? Hex(2) : CodeUnits());
    return One(character);
  }
  if (what < 0x80 && Word().Has(what) && what != '_')
    return Refused(begin, "'\\", pattern_.substr(begin + 1, 1), "' is not supported");
  return One(what);
}

absl::StatusOr<char32_t> Parser::Hex(int digits) {
  const size_t begin = at_ - 2;
  char32_t value = 0;
  for (int i = 0; i < digits; ++i) {
    const char c = AtEnd() ? ' ' : pattern_[at_++];
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) return Refused(begin, "an escape with ", digits, " hexadecimal digits is expected");
    value = value * 16 + digit;
  }
  return value;
}

// After "\u": a character beyond 0xffff is two of them.
absl::StatusOr<char32_t> Parser::CodeUnits() {
  const size_t begin = at_ - 2;
  MOED_ASSIGN_OR_RETURN(const char32_t first, Hex(4));
  if (first < 0xd800 || first > 0xdfff) return first;
  char32_t second = 0;
  if (first < 0xdc00 && Take("\\u")) {
    MOED_ASSIGN_OR_RETURN(second, Hex(4));
  }
  if (second < 0xdc00 || second > 0xdfff) return Refused(begin, "half of a surrogate pair");
  return 0x10000 + ((first & 0x3ff) << 10 | (second & 0x3ff));
}

// After "[".
absl::StatusOr<CharacterSet> Parser::Class() {
  const size_t begin = at_ - 1;
  const bool negated = Take("^");
  CharacterSet::Ranges ranges;
  for (bool first = true; first || AtEnd() || pattern_[at_] != ']'; first = false) {
    if (AtEnd()) return Refused(begin, "'[' without ']'");
    if (first && pattern_[at_] == ']') break;
    MOED_ASSIGN_OR_RETURN(CharacterSet item, ClassItem());
    const bool single = item.ranges().size() == 1 && item.ranges()[0].first == item.ranges()[0].second;
    if (single && at_ + 1 < pattern_.size() && pattern_[at_] == '-' && pattern_[at_ + 1] != ']') {
      const size_t dash = at_++;
      MOED_ASSIGN_OR_RETURN(const CharacterSet last, ClassItem());
      if (last.ranges().size() != 1 || last.ranges()[0].first != last.ranges()[0].second ||
          last.ranges()[0].first < item.ranges()[0].first)
        return Refused(dash, "no range of characters");
      item = CharacterSet({{item.ranges()[0].first, last.ranges()[0].second}});
    }
    ranges.insert(ranges.end(), item.ranges().begin(), item.ranges().end());
  }
  ++at_;
  const CharacterSet all(std::move(ranges));
  return negated ? all.Negated() : all;
}

absl::StatusOr<CharacterSet> Parser::ClassItem() {
  const char32_t character = TakeCharacter();
  if (character == '\\') return Escape(true);
  if (character == '[' && !AtEnd() && pattern_[at_] == ':') return Refused(at_ - 1, "'[:' is not supported");
  return One(character);
}

constexpr int64_t kLong = 1 << 30;  // and longer

// The fewest and the most characters that it matches.
std::pair<int64_t, int64_t> LengthsOf(const RegexNode& node) {
  if (node.kind == RegexNode::Kind::kCharacter) return {1, 1};
  if (node.kind == RegexNode::Kind::kRepeat) {
    const auto [least, most] = LengthsOf(node.parts.front());
    const int64_t times = node.most == ProgramBuilder::kNoMost ? kLong : node.most;
    return {std::min(least * node.least, kLong), std::min(most * times, kLong)};
  }
  const bool sequence = node.kind == RegexNode::Kind::kSequence;
  int64_t all_least = sequence ? 0 : kLong, all_most = 0;
  for (const RegexNode& part : node.parts) {
    const auto [least, most] = LengthsOf(part);
    all_least = sequence ? std::min(all_least + least, kLong) : std::min(all_least, least);
    all_most = sequence ? std::min(all_most + most, kLong) : std::max(all_most, most);
  }
  return {all_least, all_most};
}

}  // namespace

bool HoldLength(int least, int most, Alternative& alternative) {
  const bool any = most == ProgramBuilder::kNoMost;
  if (least == 0 && any) return true;
  if (!alternative.from_begin || !alternative.to_end) return false;
  std::vector<RegexNode>& parts = alternative.sequence.parts;
  if (parts.size() == 1 && parts[0].kind == RegexNode::Kind::kRepeat && parts[0].parts[0].kind == RegexNode::Kind::kCharacter) {
    parts[0].least = std::max(parts[0].least, least);
    if (!any) parts[0].most = parts[0].most == ProgramBuilder::kNoMost ? most : std::min(parts[0].most, most);
    return parts[0].most == ProgramBuilder::kNoMost || parts[0].least <= parts[0].most;
  }
  const auto [fewest, longest] = LengthsOf(alternative.sequence);
  return fewest >= least && (any || (longest <= most && longest < kLong));
}

absl::StatusOr<std::vector<Alternative>> ParseRegex(std::string_view pattern, Dialect dialect) {
  return Parser(pattern, dialect).Whole();
}

}  // namespace moed::grammar
