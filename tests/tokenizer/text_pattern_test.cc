#include "core/tokenizer/text_pattern.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "core/base/status.h"

namespace moed {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Matches(std::string_view pattern, std::string_view text, bool literal = false) {
  const auto compiled = TextPattern::Compile(pattern, literal);
  EXPECT_TRUE(compiled.ok()) << compiled.status();
  if (!compiled.ok()) return {};
  const TextPattern::Searcher searcher(*compiled);
  std::vector<std::string> matches;
  for (size_t from = 0;;) {
    const auto match = searcher.Find(text, from);
    EXPECT_TRUE(match.ok()) << match.status();
    if (!match.ok() || !*match) return matches;
    matches.emplace_back(text.substr((*match)->begin, (*match)->end - (*match)->begin));
    from = (*match)->end;
  }
}

TEST(TextPattern, WhiteSpaceIsUnicodes) {
  EXPECT_THAT(Matches("\\s", "a\u0085\u180e\u200b\u3000b"), ElementsAre("\u0085", "\u3000"));
  EXPECT_THAT(Matches("\\S+", "a\u0085\u180e\u200b\u3000b"), ElementsAre("a", "\u180e\u200b", "b"));
  EXPECT_THAT(Matches("[^\\s]+", "a\u0085\u180e\u200b\u3000b"), ElementsAre("a", "\u180e\u200b", "b"));
  EXPECT_THAT(Matches("[\\S]+", "a\u0085\u180e\u200b\u3000b"), ElementsAre("a", "\u180e\u200b", "b"));
}

TEST(TextPattern, CaseIsFoldedInItsGroupOnly) {
  EXPECT_THAT(Matches("(?i:'s)x", "'sx 'Sx 'ſx 'sX"), ElementsAre("'sx", "'Sx", "'ſx"));
}

// To Oniguruma "ss" is one character then.
TEST(TextPattern, LettersThatFoldToOneCharacterAreRefusedByNameWhereCaseIsFolded) {
  for (const std::string_view pattern :
       {"(?i:ss)", "(?i:loSs)", "(?i:'st)", "(?i:a(?:b)fi)", "(?i:a(b|(ff)))", "(?i:[aß])", "(?i:ﬁ)"}) {
    const absl::Status status = TextPattern::Compile(pattern, false).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << pattern;
    EXPECT_THAT(std::string(status.message()), HasSubstr("(?i:) with ")) << pattern;
  }
  EXPECT_THAT(Matches("(?i:'s|'t|'re|'ve|'m|'ll|'d)", "'S'T'RE'VE'M'LL'D"),
              ElementsAre("'S", "'T", "'RE", "'VE", "'M", "'LL", "'D"));
  EXPECT_THAT(Matches("(?i:(?:a)[st]+)ss|ßfi", "AsTss ßfi"), ElementsAre("AsTss", "ßfi"));
}

TEST(TextPattern, ScriptsAreWithoutTheirExtensions) {
  EXPECT_THAT(Matches("\\p{Han}", "\u4e00\u3001"), ElementsAre("\u4e00"));  // U+3001 is shared by several scripts
  EXPECT_THAT(Matches("\\p{^L}", "a1"), ElementsAre("1"));
}

// As the reference implementation has them, which was asked for every character.
TEST(TextPattern, WordsAreOnigurumas) {
  for (const std::string_view one : {"a", "é", "世", "٣", "Ⅷ", "_", "\u0301", "\u20dd", "Ⓐ", "🅰", "²", "½", "\u1c89"}) {
    EXPECT_THAT(Matches("\\w", one), ElementsAre(one));
    EXPECT_THAT(Matches("[\\w]", one), ElementsAre(one));
    EXPECT_THAT(Matches("1\\b", StrCat("1", one)), ElementsAre()) << one;
  }
  for (const std::string_view none : {" ", "-", "€", "①", "⅓", "৴", "\u200b"}) {
    EXPECT_THAT(Matches("1\\b", StrCat("1", none)), ElementsAre("1")) << none;
  }
  EXPECT_THAT(Matches("\\ba", "a ba, a"), ElementsAre("a", "a"));
  EXPECT_THAT(Matches("\\d{1,3}(?=(?:\\d{3})*\\b)", "1234567 12a 12"), ElementsAre("1", "234", "567", "12"));
}

TEST(TextPattern, LiteralsMeanThemselves) { EXPECT_THAT(Matches("a.(\\E", "aX(\\Ea.(\\E", true), ElementsAre("a.(\\E")); }

TEST(TextPattern, WhatWouldMeanSomethingElseIsRefused) {
  for (const std::string_view pattern :
       {"\\W",    "\\B",     "[\\b]",  "\\h",           "\\R",   "\\X", "\\Qa\\E", "\\1",   "\\A",   "a$",
        "^a",     "[a[b]]",  "[a&&b]", "[]a]",          "a{,3}", "a{",  "a{2}+",   "a{2}?", "(?i)a", "(?<n>a)",
        "(?#c)a", "(*UCP)a", "\\pL",   "\\p{Nonsense}", "\\",    "(a",  "[a",      "a*",    ""}) {
    EXPECT_EQ(TextPattern::Compile(pattern, false).status().code(), absl::StatusCode::kInvalidArgument) << pattern;
  }
}

TEST(TextPattern, BacktrackingWithoutEndIsAnError) {
  const auto pattern = TextPattern::Compile("(?:a+)+b", false);
  ASSERT_TRUE(pattern.ok());
  const auto match = TextPattern::Searcher(*pattern).Find(std::string(64, 'a') + "cb", 0);
  EXPECT_EQ(match.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(match.status().message()), HasSubstr("(?:a+)+b"));
}

TEST(TextPattern, LongMatchesNeedNoMoreThanTheHeap) {
  const std::string text(1 << 18, 'a');
  EXPECT_THAT(Matches("(?:a|bc)+", text), ElementsAre(text));
}

}  // namespace
}  // namespace moed
