#include "core/tokenizer/added_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/status.h"

namespace moed {
namespace {

using ::testing::ElementsAre;

// The sections of `text`: "[...]" for tokens, as they are for text.
std::vector<std::string> Sections(const std::vector<AddedToken>& tokens, std::string_view text,
                                  const AddedTokenMatcher::SpecialScope& special = {}) {
  const auto matcher = AddedTokenMatcher::Make(tokens, false);
  EXPECT_TRUE(matcher.ok()) << matcher.status();
  std::vector<std::string> sections;
  const auto status = matcher->Split(text, special, [&](const AddedTokenMatcher::Section& section) {
    sections.push_back(section.token ? StrCat("[", section.text, "]") : std::string(section.text));
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return sections;
}

AddedToken Token(std::string content) { return {.content = std::move(content)}; }

TEST(AddedTokens, TheLeftmostThenTheLongestWins) {
  const std::vector<AddedToken> tokens = {Token("ab"), Token("abcd"), Token("bcde"), Token("b")};
  EXPECT_THAT(Sections(tokens, "xabcdex"), ElementsAre("x", "[abcd]", "ex"));
  EXPECT_THAT(Sections(tokens, "abcxb"), ElementsAre("[ab]", "cx", "[b]"));
  EXPECT_THAT(Sections(tokens, "abc"), ElementsAre("[ab]", "c"));
  EXPECT_THAT(Sections(tokens, ""), ElementsAre());
}

TEST(AddedTokens, WhiteSpaceIsTakenOnTheNamedSides) {
  AddedToken left = Token("<l>"), right = Token("<r>");
  left.lstrip = true;
  right.rstrip = true;
  EXPECT_THAT(Sections({left, right}, "a \u3000<l> b <r>\n c"), ElementsAre("a", "[ \u3000<l>]", " b ", "[<r>\n ]", "c"));
  EXPECT_THAT(Sections({left, right}, "<r>  <l>"), ElementsAre("[<r>  ]", "[<l>]"));
}

// As Hugging Face: white space that the token before it has taken is no token again.
TEST(AddedTokens, WhatTheTokenBeforeHasTakenIsNoneAgain) {
  AddedToken newline = Token("\n"), right = Token("<r>");
  newline.lstrip = newline.rstrip = right.rstrip = true;
  EXPECT_THAT(Sections({newline}, "\n\n"), ElementsAre("[\n\n]"));
  EXPECT_THAT(Sections({newline}, "a \n\n\n b\n"), ElementsAre("a", "[ \n\n\n ]", "b", "[\n]"));
  newline.rstrip = false;
  EXPECT_THAT(Sections({newline, right}, "<r>\n\n\nb\nc"), ElementsAre("[<r>\n\n\n]", "b", "[\n]", "c"));
}

TEST(AddedTokens, ASingleWordHasNoWordCharacterBesideIt) {
  AddedToken word = Token("cat");
  word.single_word = true;
  EXPECT_THAT(Sections({word}, "cat cats tomcat _cat é cat,cat"),
              ElementsAre("[cat]", " cats tomcat _cat é ", "[cat]", ",", "[cat]"));
  EXPECT_THAT(Sections({word}, "écat catж"), ElementsAre("écat catж"));
}

TEST(AddedTokens, SpecialOnesCanBeText) {
  AddedToken special = Token("<s>");
  special.special = true;
  EXPECT_THAT(Sections({special, Token("<t>")}, "<s>a<t>"), ElementsAre("[<s>]", "a", "[<t>]"));
  EXPECT_THAT(Sections({special, Token("<t>")}, "<s>a<t>", {.nowhere = true}), ElementsAre("<s>a", "[<t>]"));
}

TEST(AddedTokens, SpecialOnesHaveNoForeignByte) {
  std::vector<AddedToken> tokens = {Token("<s>"), Token("<s>x"), Token("a<s"), Token("<t>")};
  for (size_t i = 0; i < 3; ++i) tokens[i].special = true;
  struct Case {
    const char* text;
    std::vector<ByteRange> foreign;
    std::vector<std::string> sections;
  };
  const Case kCases[] = {
      {"<s><s><t>", {{3, 9}}, {"[<s>]", "<s>", "[<t>]"}},
      {"<s><s><s>", {{3, 6}}, {"[<s>]", "<s>", "[<s>]"}},
      {"<s>x", {{3, 4}}, {"[<s>]", "x"}},  // a longer token would hide it
      {"a<s>", {{0, 1}}, {"a", "[<s>]"}},  // so would one that begins earlier
      {"<s>", {{2, 3}}, {"<s>"}},
      {"<s>", {{0, 1}}, {"<s>"}},
      {"<s>", {{1, 2}}, {"<s>"}},
      {"<<s>s>", {{1, 4}}, {"<<s>s>"}},
      {"<s>b<s>", {{3, 4}}, {"[<s>]", "b", "[<s>]"}},
      {"<t><s>", {{1, 2}, {4, 5}}, {"[<t>]", "<s>"}},
  };
  for (const Case& one : kCases) EXPECT_EQ(Sections(tokens, one.text, {.foreign = one.foreign}), one.sections) << one.text;
}

}  // namespace
}  // namespace moed
