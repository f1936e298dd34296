#include "core/grammar/regex.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/grammar/regex_syntax.h"

namespace moed::grammar {
namespace {

// What alone it matches. Nullopt where that is not one text.
std::optional<std::string> TextOf(const RegexNode& node) {
  std::string text;
  for (const RegexNode& part : node.parts) {
    const bool is_one = part.kind == RegexNode::Kind::kCharacter && part.characters.ranges().size() == 1 &&
                        part.characters.ranges()[0].first == part.characters.ranges()[0].second;
    if (!is_one) return std::nullopt;
    const char32_t character = part.characters.ranges()[0].first;
    for (const auto& sequence : Utf8Sequences(character, character)) {
      for (const ByteRange& byte : sequence) text += static_cast<char>(byte.low);
    }
  }
  return node.kind == RegexNode::Kind::kSequence ? std::optional(text) : std::nullopt;
}

// Of alternatives that are all of a text. Nullopt where they are anything else.
std::optional<std::vector<std::string>> TextsOf(const std::vector<Alternative>& alternatives) {
  std::vector<std::string> texts;
  for (const Alternative& one : alternatives) {
    auto text = TextOf(one.sequence);
    if (!text) return std::nullopt;
    texts.push_back(*std::move(text));
  }
  return texts;
}

Pc Build(const RegexNode& node, Encoding encoding, ProgramBuilder& builder, Pc next) {
  switch (node.kind) {
    case RegexNode::Kind::kCharacter:
      return builder.Character(node.characters, encoding, next);
    case RegexNode::Kind::kSequence:
      for (auto part = node.parts.rbegin(); part != node.parts.rend(); ++part) next = Build(*part, encoding, builder, next);
      return next;
    case RegexNode::Kind::kAlternatives: {
      std::vector<Pc> parts;
      for (const RegexNode& part : node.parts) parts.push_back(Build(part, encoding, builder, next));
      return builder.Either(parts);
    }
    default: {
      const auto part = [&](Pc after) { return Build(node.parts.front(), encoding, builder, after); };
      return builder.Repeat(part, node.least, node.most, next);
    }
  }
}

}  // namespace

absl::StatusOr<Pc> BuildRegex(std::string_view pattern, bool search, Encoding encoding, ProgramBuilder& builder, Pc next,
                              const TextLength& length) {
  MOED_ASSIGN_OR_RETURN(std::vector<Alternative> alternatives, ParseRegex(pattern, search ? Dialect::kEcma : Dialect::kAscii));
  if (!search && encoding == Encoding::kUtf8 && length.least == 0 && length.most == ProgramBuilder::kNoMost) {
    if (auto texts = TextsOf(alternatives)) return builder.OneOf(*std::move(texts), next);
  }
  const auto anything = [&](Pc after) {
    const auto any = [&](Pc then) { return builder.Character(CharacterSet::All(), encoding, then); };
    return builder.Repeat(any, 0, ProgramBuilder::kNoMost, after);
  };
  std::vector<Pc> parts;
  for (Alternative& one : alternatives) {
    if (!HoldLength(length.least, length.most, one))
      return InvalidArgument(
          "beside 'minLength' or 'maxLength' it is supported where each alternative has '^' and '$' and is of such lengths, or "
          "is one character, repeated");
    const Pc end = search && !one.to_end ? anything(next) : next;
    const Pc body = Build(one.sequence, encoding, builder, end);
    parts.push_back(search && !one.from_begin ? anything(body) : body);
  }
  return builder.Either(parts);
}

}  // namespace moed::grammar
