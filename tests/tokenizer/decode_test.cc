#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/base/status.h"
#include "core/tokenizer/unicode.h"
#include "tests/tokenizer/tokenizers.h"

namespace moed {
namespace {

using ::testing::HasSubstr;

struct Streamed {
  std::string text;
  std::vector<std::string> parts;
};

Streamed Stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip_special, bool continues = false) {
  StreamDecoder stream(tokenizer, skip_special, continues);
  Streamed streamed;
  for (const TokenId id : ids) streamed.parts.push_back(stream.Push(id));
  streamed.parts.push_back(stream.Flush());
  for (const std::string& part : streamed.parts) streamed.text += part;
  return streamed;
}

// The ids of the bytes of `text`, one token each.
std::vector<TokenId> ByteIds(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> ids;
  for (const char byte : text) {
    for (int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
      if (tokenizer.IsSpecial(TokenId(id)) || tokenizer.TokenBytes(TokenId(id)) != std::string(1, byte)) continue;
      ids.push_back(TokenId(id));
      break;
    }
  }
  EXPECT_EQ(ids.size(), text.size());
  return ids;
}

class EveryTokenizer : public ::testing::TestWithParam<const Tokenizer& (*)()> {
 protected:
  const Tokenizer& tokenizer() const { return GetParam()(); }
};
INSTANTIATE_TEST_SUITE_P(Decode, EveryTokenizer, ::testing::Values(&DemoTokenizer, &LlamaTokenizer),
                         [](const auto& instance) { return instance.index == 0 ? "ByteLevel" : "ByteFallback"; });

TEST_P(EveryTokenizer, StreamsConcatenateToDecodeAndAreWholeCharacters) {
  std::mt19937 random(11);
  std::vector<TokenId> bytes = ByteIds(tokenizer(), "\xF0\x9F\x98\x80\xE4\xBD\xA0\xC3\xA9");
  for (int round = 0; round < 2000; ++round) {
    std::vector<TokenId> ids;
    for (size_t length = random() % 24; ids.size() < length;) {
      ids.push_back(random() % 2 ? bytes[random() % bytes.size()]
                                 : TokenId(static_cast<int32_t>(random() % tokenizer().vocabulary_size())));
    }
    for (const bool skip_special : {true, false}) {
      const Streamed streamed = Stream(tokenizer(), ids, skip_special);
      EXPECT_EQ(streamed.text, DecodeText(tokenizer(), ids, skip_special));
      for (const std::string& part : streamed.parts) EXPECT_FALSE(FirstInvalidByte(part).has_value());
    }
  }
}

TEST_P(EveryTokenizer, HoldsBackEverySplitOfAFourByteCharacter) {
  const std::string grin = "\xF0\x9F\x98\x80";
  const std::vector<TokenId> ids = ByteIds(tokenizer(), grin), letter = ByteIds(tokenizer(), "a");
  for (size_t known = 1; known < ids.size(); ++known) {
    StreamDecoder stream(tokenizer(), true, true);
    for (size_t i = 0; i < known; ++i) EXPECT_EQ(stream.Push(ids[i]), "");
    StreamDecoder cut = stream;
    EXPECT_FALSE(FirstInvalidByte(cut.Flush()).has_value());
    std::string rest;
    for (size_t i = known; i < ids.size(); ++i) rest += stream.Push(ids[i]);
    rest += stream.Push(letter[0]);
    EXPECT_EQ(rest + stream.Flush(), grin + "a");
  }
}

TEST_P(EveryTokenizer, TokenBytesAddUpToTheTextThatContinues) {
  for (const std::string_view text : {"a b  c", "xx \xE4\xBD\xA0\xF0\x9F\x98\x80 abc!\n"}) {
    const auto ids = tokenizer().Encode(text, {.add_special_tokens = false});
    ASSERT_TRUE(ids.ok()) << ids.status();
    std::string bytes;
    for (const TokenId id : *ids) bytes += tokenizer().TokenBytes(id);
    EXPECT_EQ(bytes, Stream(tokenizer(), *ids, false, /*continues=*/true).text);
    const bool sentence_piece = &tokenizer() == &LlamaTokenizer();  // whose first space is no part of the text
    EXPECT_EQ(bytes, StrCat(sentence_piece ? " " : "", text));
    EXPECT_EQ(DecodeText(tokenizer(), *ids), text);
  }
}

TEST_P(EveryTokenizer, RefusesIdsOutsideTheVocabulary) {
  const int size = tokenizer().vocabulary_size();
  for (const int32_t id : {-1, size, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()}) {
    const auto text = tokenizer().Decode(std::vector<TokenId>{TokenId(id)});
    EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(text.status().message()), HasSubstr(std::to_string(id)));
    EXPECT_EQ(tokenizer().TokenBytes(TokenId(id)), "");
    EXPECT_FALSE(tokenizer().IsSpecial(TokenId(id)));
    EXPECT_EQ(Stream(tokenizer(), {TokenId(id)}, false).text, "");
  }
}

TEST(Decode, FirstSpaceGoesOnlyWhereTheTextBegins) {
  const Tokenizer& tokenizer = LlamaTokenizer();
  const auto ids = tokenizer.Encode("ab", {.add_special_tokens = false});
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(Stream(tokenizer, *ids, true, false).text, "ab");
  EXPECT_EQ(Stream(tokenizer, *ids, true, true).text, " ab");
}

TEST(Decode, SpecialTokensAreLeftOutOnRequest) {
  const Tokenizer& tokenizer = DemoTokenizer();
  const auto ids = tokenizer.Encode("a<|end|>b");
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(DecodeText(tokenizer, *ids, true), "ab");
  EXPECT_EQ(DecodeText(tokenizer, *ids, false), "a<|end|>b");
}

}  // namespace
}  // namespace moed
