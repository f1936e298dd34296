// Texts made of fixed text, special tokens, free text and schemas.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/grammar/texts.h"

namespace moed::grammar {
namespace {

using ::testing::StartsWith;

constexpr std::string_view kSpecial = "\xff<|end|>";

std::shared_ptr<const Grammar> Compiled(const Syntax& syntax, const VocabularyTrie& trie = DemoTrie()) {
  auto grammar = Grammar::FromSyntax(syntax, trie);
  EXPECT_TRUE(grammar.ok()) << grammar.status();
  return *std::move(grammar);
}

TEST(Syntax, FreeTextEndsWithItsFirstMarker) {
  const auto grammar = Compiled(InOrder({UpTo("aab"), Literal("!")}));
  EXPECT_TRUE(Follows(grammar, "aab!"));
  EXPECT_TRUE(Follows(grammar, "aaaab!"));
  EXPECT_TRUE(Follows(grammar, "ab aa aXaab!"));
  EXPECT_FALSE(Follows(grammar, "aab aab!"));
  EXPECT_FALSE(Follows(grammar, "text"));
}

TEST(Syntax, OneMarkerMayStandWithinAnother) {
  const auto grammar =
      Compiled(Free({InOrder({Marker("abcd"), Literal("1")}), InOrder({Marker("bc"), Literal("2"), Again()})}, true));
  EXPECT_TRUE(Follows(grammar, "xbc2abc2 and more"));
  EXPECT_FALSE(Follows(grammar, "abcd1")) << "bc came first";
}

TEST(Syntax, SpecialTokensAreNoText) {
  const VocabularyTrie special({{"a", 0}, {"<|end|>", 1}, {std::string(kSpecial), 2}}, 3);
  const VocabularyTrie plain({{"a", 0}, {"<|end|>", 1}}, 3);
  const Syntax syntax = InOrder({UpTo("<|end|>"), Literal("a")});
  Matcher with(Compiled(syntax, special), special, 1 << 16), without(Compiled(syntax, plain), plain, 1 << 16);
  EXPECT_EQ((*with.Allowed())[0], 0b111u);
  EXPECT_EQ((*without.Allowed())[0], 0b011u);
  ASSERT_TRUE(with.Accept("<|end|>").ok() && without.Accept("<|end|>").ok());
  EXPECT_EQ((*with.Allowed())[0], 0b111u) << "it was text";
  EXPECT_EQ((*without.Allowed())[0], 0b001u);
  ASSERT_TRUE(with.Accept(kSpecial).ok());
  EXPECT_EQ((*with.Allowed())[0], 0b001u);
  Matcher json(Compiled(*SyntaxOf({}), special), special, 1 << 16);
  ASSERT_TRUE(json.Accept("{\"").ok());
  EXPECT_EQ((*json.Allowed())[0], 0b011u);
}

TEST(Syntax, WhatIsWrongIsNamedByTheInnermostField) {
  const auto schema = std::make_shared<const Json>(Json::parse(R"({"properties": {"x/y": {"not": {}}}})"));
  Syntax hole = SchemaAt(schema, "/properties/x~1y");
  hole.field = "inner";
  const auto refusal = [](const Syntax& inner) {
    Syntax outer = InOrder({Literal("a"), inner});
    outer.field = "outer";
    return std::string(Grammar::FromSyntax(outer, DemoTrie()).status().message());
  };
  EXPECT_THAT(refusal(hole), StartsWith("inner: at /properties/x~1y: "));
  EXPECT_EQ(refusal(OneOf({})), "outer: no text can be what it says");
  EXPECT_THAT(refusal(Regex("a{9999}b{9999}c{9999}d{9999}e{9999}f{9999}g{9999}")), StartsWith("outer: its automaton has more"));
}

// What it takes does not grow with the places in which a part stands: here 3 to the power of 60.
TEST(Syntax, WhatIsTooLargeIsRefusedAtOnce) {
  Syntax many = Literal("a");
  for (int i = 0; i < 60; ++i) many = InOrder({many, Optional(InOrder({many, many}))});
  EXPECT_THAT(std::string(Grammar::FromSyntax(many, DemoTrie()).status().message()), StartsWith("its automaton has more"));
}

}  // namespace
}  // namespace moed::grammar
