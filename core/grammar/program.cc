#include "core/grammar/program.h"

#include <algorithm>
#include <string>

#include "core/base/check.h"

namespace moed::grammar {
namespace {

using Kind = Instruction::Kind;

// As JSON writes a character that may not stand in a string as it is.
std::string Escaped(char32_t character) {
  constexpr std::pair<char32_t, std::string_view> kShort[] = {{'"', "\\\""}, {'\\', "\\\\"}, {'\b', "\\b"}, {'\f', "\\f"},
                                                              {'\n', "\\n"}, {'\r', "\\r"},  {'\t', "\\t"}};
  for (const auto& [known, text] : kShort) {
    if (known == character) return std::string(text);
  }
  constexpr std::string_view kHex = "0123456789abcdef";
  return std::string("\\u00") + kHex[character >> 4 & 15] + kHex[character & 15];
}

}  // namespace

ProgramBuilder::ProgramBuilder(uint64_t most_text_bytes) : most_text_bytes_(most_text_bytes) {
  program_.code = {{Kind::kDead}, {Kind::kMatch}, {Kind::kReturn}};
}

Pc ProgramBuilder::Add(Instruction instruction) {
  if (program_.code.size() >= kMostInstructions) full_ = true;
  if (full_) return kDead;
  program_.code.push_back(instruction);
  return static_cast<Pc>(program_.code.size() - 1);
}

Pc ProgramBuilder::Bytes(uint8_t low, uint8_t high, Pc next) { return Add({Kind::kBytes, low, high, next}); }

Pc ProgramBuilder::Literal(std::string_view text, Pc next) {
  for (auto byte = text.rbegin(); byte != text.rend(); ++byte) {
    next = Bytes(static_cast<uint8_t>(*byte), static_cast<uint8_t>(*byte), next);
  }
  return next;
}

Pc ProgramBuilder::OneOf(std::vector<std::string> texts, Pc next) {
  std::ranges::sort(texts);
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return texts.empty() ? kDead : OneOfSorted(texts, 0, next);
}

Pc ProgramBuilder::OneOfSorted(std::span<const std::string> texts, size_t from, Pc next) {
  const std::string &first = texts.front(), &last = texts.back();
  size_t alike = from;
  while (alike < std::min(first.size(), last.size()) && first[alike] == last[alike]) ++alike;
  std::vector<Pc> ways;
  if (first.size() == alike) {
    ways.push_back(next);
    texts = texts.subspan(1);
  }
  while (!texts.empty() && !full_) {
    const char byte = texts.front()[alike];
    const auto others = std::ranges::find_if(texts, [&](const std::string& text) { return text[alike] != byte; });
    const auto count = static_cast<size_t>(others - texts.begin());
    ways.push_back(OneOfSorted(texts.first(count), alike, next));
    texts = texts.subspan(count);
  }
  return Literal(std::string_view(first).substr(from, alike - from), Either(ways));
}

Pc ProgramBuilder::Either(std::span<const Pc> parts) {
  if (parts.empty()) return kDead;
  Pc all = parts.back();
  for (size_t i = parts.size() - 1; i > 0; --i) all = Either(parts[i - 1], all);
  return all;
}

Pc ProgramBuilder::Repeat(absl::FunctionRef<Pc(Pc next)> part, int least, int most, Pc next) {
  Pc start = next;
  if (most == kNoMost) {
    start = Either(kDead, next);
    if (full_) return kDead;
    const Pc body = part(start);
    program_.code[start].next = body;
  }
  for (int i = least; i < most && !full_; ++i) start = Either(part(start), next);
  for (int i = 0; i < least && !full_; ++i) {
    const Pc before = start;
    start = part(start);
    if (start == before) break;  // the empty text, however often
  }
  return start;
}

Pc ProgramBuilder::Character(const CharacterSet& set, Encoding encoding, Pc next) {
  const auto& ranges = set.ranges();
  if (ranges.size() == 1 && ranges[0].second < 0x80 && encoding == Encoding::kUtf8) return Encoded(set, encoding, next);
  const auto [found, is_new] = character_rules_.try_emplace({ranges, encoding}, 0);
  if (is_new) {
    found->second = NewRule();
    SetRule(found->second, Encoded(set, encoding, kReturn));
  }
  return Call(found->second, next);
}

Pc ProgramBuilder::Encoded(const CharacterSet& set, Encoding encoding, Pc next) {
  static const auto& kEscaped = *new CharacterSet({{0, 0x1f}, {'"', '"'}, {'\\', '\\'}});
  std::vector<Pc> parts;
  if (encoding == Encoding::kJsonString) {
    for (const auto& [low, high] : kEscaped.ranges()) {
      for (char32_t character = low; character <= high; ++character) {
        if (set.Has(character)) parts.push_back(Literal(Escaped(character), next));
      }
    }
  }
  const CharacterSet plain = encoding == Encoding::kJsonString ? set.Without(kEscaped) : set;
  for (const auto& [low, high] : plain.ranges()) {
    for (const auto& sequence : Utf8Sequences(low, high)) {
      Pc start = next;
      for (auto range = sequence.rbegin(); range != sequence.rend(); ++range) start = Bytes(range->low, range->high, start);
      parts.push_back(start);
    }
  }
  return Either(parts);
}

uint32_t ProgramBuilder::NewRule() {
  program_.rules.push_back(kDead);
  return static_cast<uint32_t>(program_.rules.size() - 1);
}

Program ProgramBuilder::Finish(Pc start) && {
  MOED_CHECK(!full_);
  program_.start = start;
  Prune();
  ClassifyBytes();
  program_.code.shrink_to_fit();
  program_.rules.shrink_to_fit();
  return std::move(program_);
}

// Instructions from which no end can be reached become kDead: what is matched so far can always become a whole text.
void ProgramBuilder::Prune() {
  auto& code = program_.code;
  std::vector<bool> ends(code.size(), false);
  const auto reaches_end = [&](const Instruction& one) {
    switch (one.kind) {
      case Kind::kBytes:
        return static_cast<bool>(ends[one.next]);
      case Kind::kSplit:
        return ends[one.next] || ends[one.other];
      case Kind::kCall:
        return ends[one.next] && ends[program_.rules[one.other]];
      default:
        return one.kind != Kind::kDead;
    }
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t pc = 0; pc < code.size(); ++pc) {
      if (ends[pc] || !reaches_end(code[pc])) continue;
      ends[pc] = changed = true;
    }
  }
  for (size_t pc = 0; pc < code.size(); ++pc) {
    if (!ends[pc]) code[pc] = {Kind::kDead};
  }
  SkipSplits();
}

// What leads to a split with one way to go on leads there. No circle is made of these alone, for each of them leads to an end.
void ProgramBuilder::SkipSplits() {
  auto& code = program_.code;
  const auto dead = [&](Pc pc) { return code[pc].kind == Kind::kDead; };
  const auto skipped = [&](Pc pc) {
    const Instruction& one = code[pc];
    return one.kind == Kind::kSplit && (dead(one.next) || dead(one.other) || one.next == one.other);
  };
  std::vector<Pc> path;
  const auto skip = [&](Pc& to) {
    for (path.clear(); skipped(to); to = dead(code[to].next) ? code[to].other : code[to].next) path.push_back(to);
    for (const Pc pc : path) code[pc].next = code[pc].other = to;
  };
  for (Instruction& one : code) {
    skip(one.next);
    if (one.kind == Kind::kSplit) skip(one.other);
  }
  for (Pc& rule : program_.rules) skip(rule);
  skip(program_.start);
}

void ProgramBuilder::ClassifyBytes() {
  std::array<bool, 257> begins = {};
  for (const Instruction& one : program_.code) {
    if (one.kind != Kind::kBytes) continue;
    begins[one.low] = true;
    begins[one.high + 1] = true;
  }
  int current = 0;
  for (int byte = 0; byte < 256; ++byte) {
    if (byte > 0 && begins[byte]) ++current;
    program_.byte_class[byte] = static_cast<uint8_t>(current);
  }
  program_.classes = current + 1;
}

}  // namespace moed::grammar
