#include "core/tokenizer/added_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/status.h"

namespace moed {
namespace {

using ::testing::ElementsAre;

// The sections of `text`: "[...]" for tokens, as they are for text.
std::vector<std::string> Sections(const std::vector<AddedToken>& tokens, std::string_view text, bool match_special = true) {
  const auto matcher = AddedTokenMatcher::Make(tokens, false);
  EXPECT_TRUE(matcher.ok()) << matcher.status();
  std::vector<std::string> sections;
  const auto status = matcher->Split(text, match_special, [&](const AddedTokenMatcher::Section& section) {
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
  EXPECT_THAT(Sections({special, Token("<t>")}, "<s>a<t>", true), ElementsAre("[<s>]", "a", "[<t>]"));
  EXPECT_THAT(Sections({special, Token("<t>")}, "<s>a<t>", false), ElementsAre("<s>a", "[<t>]"));
}

}  // namespace
}  // namespace moed
