// What expressions match, and what they are refused for.
#include "core/grammar/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/grammar/texts.h"

namespace moed::grammar {
namespace {

TEST(Regex, MatchesWholeTexts) {
  struct Case {
    const char* pattern;
    std::vector<std::string> yes, no;
  };
  const Case kCases[] = {
      {"", {""}, {"a"}},
      {"abc", {"abc"}, {"", "ab", "abcd", "xabc"}},
      {"a|bc|", {"a", "bc", ""}, {"b", "abc"}},
      {"^a$|^b", {"a", "b"}, {"ab"}},
      {"(?:ab)*c", {"c", "abc", "ababc"}, {"ab", "aabc"}},
      {"a+b?", {"a", "aab"}, {"", "b", "abb"}},
      {"a{2,3}", {"aa", "aaa"}, {"a", "aaaa"}},
      {"a{2,}", {"aa", "aaaaaa"}, {"a"}},
      {"a{0}b", {"b"}, {"ab"}},
      {"a*?b+?", {"aab", "b"}, {"a"}},
      {"(a|b){2}(c)", {"abc", "bbc"}, {"ac"}},
      {"(a*)*", {"", "aaa"}, {"b"}},
      {"[a-c_-]+", {"a-_c"}, {"", "d"}},
      {"[^a-c]", {"d", "é", "\n", "🙂"}, {"b", "", "dd"}},
      {"[\\d\\]]{2}", {"1]", "]]"}, {"a1"}},
      {"\\w+@\\w+\\.(com|org)", {"a@b.org"}, {"a@b.net", "a@b_org"}},
      {"\\x41\\u00e9\\n\\.", {"Aé\n."}, {"Ae\n."}},
      {".", {"x", "é", "漢", "🙂"}, {"", "\n", "xx", "\xff"}},
      {"[à-ö]", {"é", "à", "ö"}, {"ø", "e"}},
      {"[\\u0080-\\uffff]", {"\xc2\x80", "\xef\xbf\xbf", "\xed\x9f\xbf"}, {"\x7f", "🙂", "\xed\xa0\x80"}},
      {"\\ud83d\\ude42[\\ud83d\\ude42-\\ud83d\\ude44]", {"🙂🙃"}, {"🙂", "🙂🙅"}},
      {"\\s", {" ", "\t"}, {"\u00a0"}},
      {"\\D\\W\\S", {"a.b"}, {"1.b", "aab"}},
      {"(19|20)\\d{2}-(0[1-9]|1[0-2])", {"1999-12", "2024-01"}, {"1999-13", "199-01"}},
  };
  for (const Case& one : kCases) {
    const auto grammar = Grammar::FromRegex(one.pattern);
    ASSERT_TRUE(grammar.ok()) << one.pattern << ": " << grammar.status();
    for (const std::string& text : one.yes) EXPECT_TRUE(Follows(*grammar, text)) << one.pattern << " | " << text;
    for (const std::string& text : one.no) EXPECT_FALSE(Follows(*grammar, text)) << one.pattern << " | " << text;
  }
}

std::string Nested(std::string pattern, const char* repetition, int depth) {
  for (int i = 0; i < depth; ++i) pattern = "(" + pattern + ")" + repetition;
  return pattern;
}

// Each would take minutes or years if its repetitions were gone through.
TEST(Regex, WhatIsEmptyIsNotRepeated) {
  for (const char* empty : {"", "a{0}", "(|)", "()|()", "(a{0,0}|)"}) {
    for (const char* repetition : {"{9999}", "{9999,}", "{0,9999}", "{1,9999}", "*", "+"}) {
      const auto grammar = Grammar::FromRegex(Nested(empty, repetition, 12));
      ASSERT_TRUE(grammar.ok()) << empty << repetition << ": " << grammar.status();
      EXPECT_TRUE(Follows(*grammar, ""));
      EXPECT_FALSE(Follows(*grammar, "a"));
    }
  }
  std::string many;
  for (int i = 0; i < 20'000; ++i) many += "()";
  const auto grammar = Grammar::FromRegex(Nested(many, "{0,9999}", 3) + "b");
  ASSERT_TRUE(grammar.ok()) << grammar.status();
  EXPECT_TRUE(Follows(*grammar, "b"));
}

TEST(Regex, RefusalsNameByteAndConstruct) {
  const std::pair<const char*, const char*> kRefused[] = {
      {"a(?=b)", "at byte 1: '(?=' is not supported: no lookaround, flags or names"},
      {"(?i)a", "at byte 0: '(?i' is not supported: no lookaround, flags or names"},
      {"(a)\\1", "at byte 3: '\\1' is not supported"},
      {"a\\b", "at byte 1: '\\b' is not supported"},
      {"\\p{L}", "at byte 0: '\\p' is not supported"},
      {"a^b", "at byte 1: '^' is supported at an alternative's begin only"},
      {"(a$)", "at byte 2: '$' is supported at an alternative's end only"},
      {"(a", "at byte 0: '(' without ')'"},
      {"a)", "at byte 1: ')' without '('"},
      {"[a", "at byte 0: '[' without ']'"},
      {"[b-a]", "at byte 2: no range of characters"},
      {"[+-\\d]", "at byte 2: no range of characters"},
      {"*a", "at byte 0: nothing to repeat"},
      {"a**", "at byte 2: a repetition of a repetition"},
      {"a*+", "at byte 1: possessive repetition is not supported"},
      {"a{2,1}", "at byte 1: no repetition {m}, {m,} or {m,n}"},
      {"a{x}", "at byte 1: no repetition {m}, {m,} or {m,n}"},
      {"a{99999}", "at byte 1: more than 10000 repetitions"},
      {"a\\ud83d", "at byte 1: half of a surrogate pair"},
      {"\\ude42\\ud83d", "at byte 0: half of a surrogate pair"},
      {"\\x4", "at byte 0: an escape with 2 hexadecimal digits is expected"},
      {"a\\", "at byte 1: '\\' at the end"},
      {"\xff", "at byte 0: no UTF-8"},
      {"[]", "no text can be what it says"},
      {"((a{1000}){1000}){1000}", "its automaton has more than 65536 instructions"},
  };
  for (const auto& [pattern, words] : kRefused) {
    const auto grammar = Grammar::FromRegex(pattern);
    EXPECT_EQ(grammar.status().code(), absl::StatusCode::kInvalidArgument) << pattern;
    EXPECT_EQ(grammar.status().message(), words) << pattern;
  }
  EXPECT_FALSE(Grammar::FromRegex(std::string(100'000, 'a')).ok());
  EXPECT_FALSE(Grammar::FromRegex(std::string(60'000, '(')).ok());
}

}  // namespace
}  // namespace moed::grammar
