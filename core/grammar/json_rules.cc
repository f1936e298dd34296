#include "core/grammar/json_rules.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "core/grammar/number_range.h"

namespace moed::grammar {
namespace {

constexpr Pc kReturn = ProgramBuilder::kReturn;
constexpr int kNoMost = ProgramBuilder::kNoMost;
constexpr int kMostIndentation = 32;
constexpr int kMostFractionDigits = 17;  // more tell no two doubles apart
constexpr int kMostExponentDigits = 2;   // so that every number is a finite double

}  // namespace

JsonRules::JsonRules(ProgramBuilder& builder)
    : builder_(builder), space_(builder.NewRule()), character_(builder.NewRule()), value_(builder.NewRule()) {
  SetSpace();
  SetCharacter();
  SetValue();
}

void JsonRules::SetSpace() {
  const auto blank = [this](Pc next) {
    return builder_.Character(CharacterSet({{'\t', '\t'}, {' ', ' '}}), Encoding::kUtf8, next);
  };
  const Pc line = builder_.Repeat(blank, 0, kMostIndentation, kReturn);
  const Pc parts[] = {kReturn, builder_.Bytes(' ', ' ', kReturn), builder_.Bytes('\n', '\n', line),
                      builder_.Literal("\r\n", line)};
  builder_.SetRule(space_, builder_.Either(parts));
}

// One character of a string, as it is or escaped; never half of a surrogate pair.
void JsonRules::SetCharacter() {
  const CharacterSet hex({{'0', '9'}, {'A', 'F'}, {'a', 'f'}});
  const auto one_of = [this](const CharacterSet& set, Pc next) { return builder_.Character(set, Encoding::kUtf8, next); };
  const auto digits = [&](int count, Pc next) {
    for (int i = 0; i < count; ++i) next = one_of(hex, next);
    return next;
  };
  const CharacterSet d({{'D', 'D'}, {'d', 'd'}});
  const Pc low = builder_.Literal("\\u", one_of(d, one_of(CharacterSet({{'C', 'F'}, {'c', 'f'}}), digits(2, kReturn))));
  const Pc escapes[] = {
      one_of(CharacterSet({{'"', '"'}, {'/', '/'}, {'\\', '\\'}, {'b', 'b'}, {'f', 'f'}, {'n', 'n'}, {'r', 'r'}, {'t', 't'}}),
             kReturn),
      builder_.Bytes('u', 'u', one_of(hex.Without(d), digits(3, kReturn))),
      builder_.Bytes('u', 'u', one_of(d, one_of(CharacterSet({{'0', '7'}}), digits(2, kReturn)))),
      builder_.Bytes('u', 'u', one_of(d, one_of(CharacterSet({{'8', '9'}, {'A', 'B'}, {'a', 'b'}}), digits(2, low)))),
  };
  const CharacterSet plain = CharacterSet({{0, 0x1f}, {'"', '"'}, {'\\', '\\'}}).Negated();
  builder_.SetRule(character_, builder_.Either(one_of(plain, kReturn), builder_.Bytes('\\', '\\', builder_.Either(escapes))));
}

void JsonRules::SetValue() {
  const Pc parts[] = {
      Map(value_, kReturn),
      Array(value_, 0, kNoMost, kReturn),
      String(0, kNoMost, kReturn),
      Number(false, kReturn),
      builder_.Literal("true", kReturn),
      builder_.Literal("false", kReturn),
      builder_.Literal("null", kReturn),
  };
  builder_.SetRule(value_, builder_.Either(parts));
}

Pc JsonRules::String(int least, int most, Pc next) {
  const auto character = [this](Pc after) { return builder_.Call(character_, after); };
  return builder_.Bytes('"', '"', builder_.Repeat(character, least, most, builder_.Bytes('"', '"', next)));
}

Pc JsonRules::MapOf(absl::FunctionRef<Pc(Pc next)> entry, Pc next) {
  const Pc close = Space(builder_.Bytes('}', '}', next));
  const auto further = [&](Pc after) { return builder_.Bytes(',', ',', Space(entry(after))); };
  const Pc some = entry(builder_.Repeat(further, 0, kNoMost, close));
  return builder_.Bytes('{', '{', builder_.Either(Space(some), close));
}

Pc JsonRules::Map(uint32_t value, Pc next) {
  return MapOf([&](Pc after) { return String(0, kNoMost, builder_.Bytes(':', ':', Space(builder_.Call(value, after)))); }, next);
}

Pc JsonRules::Map(std::span<const Entry> entries, Pc next) {
  const auto one_of = [&](Pc after) {
    std::vector<Pc> ways;
    for (const Entry& entry : entries) {
      ways.push_back(builder_.Call(entry.name, builder_.Bytes(':', ':', Space(builder_.Call(entry.value, after)))));
    }
    return builder_.Either(ways);
  };
  return MapOf(one_of, next);
}

Pc JsonRules::Array(uint32_t value, int least, int most, Pc next) {
  const Pc close = Space(builder_.Bytes(']', ']', next));
  const auto further = [&](Pc after) { return builder_.Bytes(',', ',', Space(builder_.Call(value, after))); };
  const Pc rest = builder_.Repeat(further, least > 0 ? least - 1 : 0, most == kNoMost ? kNoMost : most - 1, close);
  const Pc some = most == 0 ? ProgramBuilder::kDead : Space(builder_.Call(value, rest));
  return builder_.Bytes('[', '[', least > 0 ? some : builder_.Either(some, close));
}

// Backwards: `further` goes on after as many values as `first` has up to here, with the comma before the next.
Pc JsonRules::Tuple(std::span<const uint32_t> first, uint32_t value, int least, int most, Pc next) {
  const auto firsts = static_cast<int>(first.size());
  const Pc close = Space(builder_.Bytes(']', ']', next));
  const auto one_more = [&](Pc after) { return builder_.Bytes(',', ',', Space(builder_.Call(value, after))); };
  Pc further = close;
  if (most == kNoMost || most >= firsts) {
    further = builder_.Repeat(one_more, std::max(least - firsts, 0), most == kNoMost ? kNoMost : most - firsts, close);
  }
  for (int i = most == kNoMost ? firsts : std::min(firsts, most); i > 0; --i) {
    const Pc written = Space(builder_.Call(first[i - 1], further));
    further = i > 1 ? builder_.Bytes(',', ',', written) : written;
    if (i - 1 >= least) further = builder_.Either(further, close);
  }
  return builder_.Bytes('[', '[', further);
}

// Sets are numbers, of a bit for each value: `further` goes on after those that are there.
Pc JsonRules::Distinct(std::span<const uint32_t> values, int least, int most, Pc next) {
  const Pc close = Space(builder_.Bytes(']', ']', next));
  std::vector<Pc> further(size_t{1} << values.size());
  for (size_t set = further.size(); set-- > 0;) {
    const int count = std::popcount(set);
    std::vector<Pc> ways;
    for (size_t i = 0; i < values.size() && (most == kNoMost || count < most); ++i) {
      if ((set >> i & 1) == 0) ways.push_back(builder_.Call(values[i], further[set | size_t{1} << i]));
    }
    const Pc one_more = Space(builder_.Either(ways));
    further[set] = count > 0 ? builder_.Bytes(',', ',', one_more) : one_more;
    if (count >= least) further[set] = builder_.Either(further[set], close);
  }
  return builder_.Bytes('[', '[', further.front());
}

Pc JsonRules::Digits(int least, int most, Pc next) {
  const auto digit = [this](Pc after) { return builder_.Bytes('0', '9', after); };
  return builder_.Repeat(digit, least, most, next);
}

Pc JsonRules::Fraction(Pc next) { return builder_.Either(builder_.Bytes('.', '.', Digits(1, kMostFractionDigits, next)), next); }

Pc JsonRules::Number(bool whole, Pc next) {
  if (!whole) {
    const Pc digits = Digits(1, kMostExponentDigits, next);
    const Pc sign = builder_.Either(builder_.Character(CharacterSet({{'+', '+'}, {'-', '-'}}), Encoding::kUtf8, digits), digits);
    const Pc exponent = builder_.Character(CharacterSet({{'E', 'E'}, {'e', 'e'}}), Encoding::kUtf8, sign);
    next = Fraction(builder_.Either(exponent, next));
  }
  const Pc magnitude =
      builder_.Either(builder_.Bytes('0', '0', next), builder_.Bytes('1', '9', Digits(0, kMostWholeDigits - 1, next)));
  return builder_.Either(magnitude, builder_.Bytes('-', '-', magnitude));
}

}  // namespace moed::grammar
