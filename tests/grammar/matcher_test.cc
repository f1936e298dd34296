// Masks are what trying every token gives, and what a matcher holds is bounded.
#include "core/grammar/matcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/status.h"
#include "core/grammar/matcher_pool.h"
#include "tests/grammar/texts.h"

namespace moed::grammar {
namespace {

// The mask as its definition has it: each token is tried on its own.
std::vector<uint64_t> Tried(const Matcher& matcher, const Tokenizer& tokenizer, int vocabulary) {
  std::vector<uint64_t> mask((vocabulary + 63) / 64, 0);
  for (int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    const std::string bytes = ProgramBytes(tokenizer, TokenId(id));
    Matcher ahead = matcher;
    if (bytes.empty() || !ahead.Accept(bytes).ok()) continue;
    mask[id / 64] |= uint64_t{1} << (id % 64);
  }
  return mask;
}

TEST(Matcher, MasksAreWhatTryingEveryTokenGives) {
  const Tokenizer* kTokenizers[] = {&DemoTokenizer(), &LlamaTokenizer()};
  for (const Tokenizer* tokenizer : kTokenizers) {
    const int vocabulary = tokenizer->vocabulary_size() + 3;
    const VocabularyTrie trie(*tokenizer, vocabulary);
    const auto grammar = Grammar::FromJsonSchema(R"({"properties": {"name": {"type": "string"}, "n": {"type": "integer"}}})");
    Matcher matcher(*grammar, trie, MatcherCacheBytes(vocabulary));
    for (const char* text : {"", "{", "\"name", "\": ", "\"a ", "b\\", "n\"", ",", " \"n\":", "1"}) {
      ASSERT_TRUE(matcher.Accept(text).ok()) << text;
      const auto allowed = matcher.Allowed();
      ASSERT_TRUE(allowed.ok()) << allowed.status();
      EXPECT_EQ(std::vector<uint64_t>(allowed->begin(), allowed->end()), Tried(matcher, *tokenizer, vocabulary)) << text;
    }
    EXPECT_FALSE(matcher.MayEnd());
    ASSERT_TRUE(matcher.Accept("}").ok());
    EXPECT_TRUE(matcher.MayEnd());
  }
}

TEST(Matcher, ALittleCacheGivesTheSameMasks) {
  const auto grammar = *Grammar::FromRegex("([a-z]{1,40} ){2,30}");
  Matcher large = MatcherOf(grammar);
  Matcher little(grammar, DemoTrie(), 24 << 10);
  for (int word = 0; word < 30; ++word) {
    const auto expected = large.Allowed(), actual = little.Allowed();
    ASSERT_TRUE(expected.ok() && actual.ok()) << expected.status() << actual.status();
    ASSERT_TRUE(std::equal(expected->begin(), expected->end(), actual->begin()));
    ASSERT_EQ(large.MayEnd(), little.MayEnd());
    ASSERT_TRUE(large.Accept("word ").ok());
    ASSERT_TRUE(little.Accept("word ").ok());
  }
}

TEST(Matcher, TooManyStatesOrWaysAreNamed) {
  Matcher states(*Grammar::FromRegex("(a|b)*a(a|b){400}"), DemoTrie(), 16 << 10);
  absl::Status status = states.Allowed().status();
  for (int i = 0; status.ok() && i < 500; ++i) {
    status = states.Accept(i % 3 == 0 ? "a" : "b");
    if (status.ok()) status = states.Allowed().status();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("fewer alternatives"));
  Matcher ways = MatcherOf(*Grammar::FromRegex("(((a{0,200}){0,60})(a|b)*)*b"));
  status = ways.Accept(std::string(300, 'a'));
  if (status.ok()) status = ways.Allowed().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("fewer alternatives"));
}

// Every letter is a class of its own, and where the last ones were tells hundreds of states apart: `between` is followed often.
std::string ManyStates(const std::string& between) {
  return "(?:[a-z]" + between + ")*[a-m][a-z]{8}|1abcdefghijklmnopqrstuvwxyz";
}

absl::Status Begun(const std::string& pattern) {
  Matcher matcher(*Grammar::FromRegex(pattern), DemoTrie(), MatcherCacheBytes(150'000));
  absl::Status status = matcher.Allowed().status();
  for (const char* text : {"once", "upon", "a", "time", "there", "was"}) {
    if (status.ok()) status = matcher.Accept(text);
    if (status.ok()) status = matcher.Allowed().status();
  }
  return status;
}

TEST(Matcher, WhatNeverMatchesIsNotFollowed) {
  for (const char* between :
       {"", "(?:[]?){1900}", "(?:[]*){1900}", "(?:[]|){1900}", "(?:[]?|(?:[]a)?){1900}", "(?:[]+b|){1900}"}) {
    const absl::Status status = Begun(ManyStates(between));
    EXPECT_TRUE(status.ok()) << between << ": " << status;
  }
}

TEST(Matcher, WhatIsFollowedForAMaskIsBounded) {
  for (const char* between : {"(?:(?:[]?)*){3900}", "(?:(?:[]*)*){3900}"}) {
    const absl::Status status = Begun(ManyStates(between));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << between << ": " << status;
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("what may come next takes more than 1048576 steps to tell"));
  }
}

TEST(Matcher, NestingHasAnEnd) {
  Matcher matcher = MatcherOf(*Grammar::FromJsonSchema("true"));
  int depth = 0;
  while (depth < 10'000 && matcher.Accept("[").ok()) ++depth;
  EXPECT_GT(depth, 100);
  EXPECT_LE(depth, Matcher::kMostNested + 1);
}

TEST(Matcher, AVocabularyThatCannotGoOnIsNamed) {
  // Its only byte pieces are ASCII's; nothing spells this character.
  const VocabularyTrie trie(LlamaTokenizer(), 1);
  Matcher matcher(*Grammar::FromRegex("é"), trie, MatcherCacheBytes(1));
  EXPECT_EQ(matcher.Allowed().status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(MatcherPool, GivesNoMoreThanItsShare) {
  const uint64_t vocabulary = VocabularyTrie(DemoTokenizer(), kDemoVocabulary).bytes();
  const Syntax any = *SyntaxOf({});
  const uint64_t grammar = Grammar::FromSyntax(any, DemoTrie()).value()->bytes();
  const uint64_t share = vocabulary + 2 * (MatcherCacheBytes(kDemoVocabulary) + grammar);
  MatcherPool pool(DemoTokenizer(), kDemoVocabulary, share);
  auto one = pool.Make(any), other = pool.Make(any);
  ASSERT_TRUE(one.ok() && other.ok()) << one.status() << other.status();
  EXPECT_TRUE(absl::IsResourceExhausted(pool.Make(any).status()));
  one->reset();
  EXPECT_TRUE(pool.Make(any).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(pool.Make(Regex("[a-z]{9000}")).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(pool.Make(Regex("(")).status()));
  const absl::Status ambiguous =
      MatcherPool(DemoTokenizer(), kDemoVocabulary, share + (1 << 20)).Make(Regex("(a?){0,5000}")).status();
  EXPECT_TRUE(absl::IsInvalidArgument(ambiguous)) << ambiguous;
  EXPECT_THAT(std::string(ambiguous.message()), testing::HasSubstr("ways to go on"));
  MatcherPool little(DemoTokenizer(), kDemoVocabulary, vocabulary - 1);
  EXPECT_TRUE(absl::IsInvalidArgument(little.Make(any).status()));
}

// A bound that answers do not reach is none; one token less and it is one, which the automaton has to count up to.
TEST(MatcherPool, BoundsThatNoAnswerReachesAreNone) {
  constexpr uint64_t kShare = 16 << 20;
  const auto schema = [](uint64_t most) {
    return *SyntaxOf({TextFormat::Kind::kJsonSchema, StrCat(R"({"type": "string", "maxLength": )", most, "}")});
  };
  const uint64_t longest = static_cast<uint64_t>(DemoTrie().deepest());
  MatcherPool pool(DemoTokenizer(), kDemoVocabulary, kShare);
  EXPECT_TRUE(pool.Make(schema(100'000 * longest), 100'000).ok());
  EXPECT_TRUE(pool.Make(schema(2147483647), 100'000).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(pool.Make(schema(100'000 * longest - 1), 100'000).status()));
}

}  // namespace
}  // namespace moed::grammar
