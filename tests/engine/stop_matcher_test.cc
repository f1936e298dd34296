#include "core/engine/stop_matcher.h"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <vector>

namespace moed {
namespace stop_matcher_test {

struct Outcome {
  std::string text;
  std::string match;  // "" = none
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

std::ostream& operator<<(std::ostream& out, const Outcome& outcome) {
  return out << '"' << outcome.text << "\", match \"" << outcome.match << '"';
}

Outcome Match(const std::vector<std::string>& stops, bool include, const std::vector<std::string>& pieces) {
  StopMatcher matcher(stops, include);
  Outcome outcome;
  for (const std::string& piece : pieces) outcome.text += matcher.Push(piece);
  outcome.text += matcher.Flush();
  if (matcher.matched()) outcome.match = matcher.match();
  return outcome;
}

// The whole text at once, by the definition: first end, then longest.
Outcome Definition(const std::vector<std::string>& stops, bool include, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<std::string> longest;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop) && (!longest || stop.size() > longest->size())) longest = stop;
    }
    if (longest) return {text.substr(0, include ? end : end - longest->size()), *longest};
  }
  return {text, ""};
}

struct MatchCase {
  std::vector<std::string> stops;
  std::string text;
  Outcome expected;
};
const MatchCase kCases[] = {
    {{"END"}, "one END two", {"one ", "END"}},
    {{"END"}, "one EN", {"one EN", ""}},
    {{"END"}, "EEND", {"E", "END"}},
    {{"END"}, "END", {"", "END"}},
    {{"aab"}, "aaab", {"a", "aab"}},
    {{"abab"}, "abaabab", {"aba", "abab"}},
    {{"bc", "abcd"}, "xabcd", {"xa", "bc"}},     // bc ends first
    {{"c", "abc", "bc"}, "xabc", {"x", "abc"}},  // all end at once
    {{"\n\n", "\nQ:"}, "a\nQ:b", {"a", "\nQ:"}},
    {{"\xc3\xa9t"}, "caf\xc3\xa9 \xc3\xa9t\xc3\xa9", {"caf\xc3\xa9 ", "\xc3\xa9t"}},
    {{}, "plain", {"plain", ""}},
};

TEST(StopMatcherTest, EverySplitGivesTheSame) {
  for (const MatchCase& c : kCases) {
    EXPECT_EQ(Definition(c.stops, false, c.text), c.expected);
    for (uint32_t cuts = 0; cuts < (1u << (c.text.size() - 1)); ++cuts) {
      std::vector<std::string> pieces(1);
      for (size_t i = 0; i < c.text.size(); ++i) {
        pieces.back() += c.text[i];
        if (cuts >> i & 1) pieces.emplace_back();
      }
      ASSERT_EQ(Match(c.stops, false, pieces), c.expected) << c.text << " cut at " << cuts;
      ASSERT_EQ(Match(c.stops, true, pieces), Definition(c.stops, true, c.text)) << c.text << " cut at " << cuts;
    }
  }
}

TEST(StopMatcherTest, RandomTextsOverASmallAlphabetAgreeWithTheDefinition) {
  std::mt19937 random(13);
  const auto letters = [&](int length) {
    std::string text;
    for (int i = 0; i < length; ++i) text += static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> stops;
    for (uint32_t i = random() % 4; i-- > 0;) stops.push_back(letters(2 + random() % 6));
    std::vector<std::string> pieces;
    std::string text;
    for (int i = 0; i < 8; ++i) text += pieces.emplace_back(letters(random() % 5));
    const bool include = random() % 2 == 0;
    ASSERT_EQ(Match(stops, include, pieces), Definition(stops, include, text)) << text;
  }
}

TEST(StopMatcherTest, WhatMayNotMatchYetMayBeginAMatch) {
  StopMatcher matcher({"STOP", "x"}, false);
  EXPECT_EQ(matcher.Push("a STOP x", false), "a STOP x");
  EXPECT_EQ(matcher.Push("yST", false), "y");
  EXPECT_FALSE(matcher.matched());
  EXPECT_EQ(matcher.Push("OPz"), "");
  EXPECT_EQ(matcher.match(), "STOP");
}

TEST(StopMatcherTest, HoldsBackNoMoreThanMayBegin) {
  StopMatcher matcher({"STOP"}, false);
  EXPECT_EQ(matcher.Push("abc"), "abc");
  EXPECT_EQ(matcher.Push("dS"), "d");
  EXPECT_EQ(matcher.Push("T"), "");
  EXPECT_EQ(matcher.Push("x"), "STx");
  EXPECT_EQ(matcher.Push("STO"), "");
  EXPECT_EQ(matcher.Flush(), "STO");
  EXPECT_FALSE(matcher.matched());
}

TEST(StopMatcherTest, ReleasesWholeCharacters) {
  const std::string stop = "\xf0\x9f\x98\x80!";  // shares three bytes with the character below
  StopMatcher matcher({stop}, false);
  EXPECT_EQ(matcher.Push("\xf0\x9f\x98\x81"), "\xf0\x9f\x98\x81");
  EXPECT_EQ(matcher.Push("\xf0\x9f\x98\x80"), "");
  EXPECT_EQ(matcher.Push("?"), "\xf0\x9f\x98\x80?");
}

TEST(StopMatcherTest, NothingAfterAMatch) {
  StopMatcher matcher({"x"}, false);
  EXPECT_EQ(matcher.Push("axb"), "a");
  EXPECT_EQ(matcher.Push("cxd"), "");
  EXPECT_EQ(matcher.Flush(), "");
}

}  // namespace stop_matcher_test
}  // namespace moed
