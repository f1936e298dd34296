// Japanese words against transformers (make_japanese_vectors.py), and what is no such tokenizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tokenizer/tokenizers.h"

namespace moed {
namespace {

using nlohmann::json;

const json& Golden() {
  static const json golden = json::parse(ReadFileText(TestData("japanese.vectors.json.xz")));
  return golden;
}

std::string Words() { return Golden()["vocabulary"].get<std::string>(); }
std::string Emoji() { return Golden()["emoji"].get<std::string>(); }

const Tokenizer& Japanese() {
  static const auto tokenizer = Tokenizer::FromBlob(CompileJapaneseTokenizer(Words(), Emoji()).value()).value();
  return *tokenizer;
}

TEST(Japanese, IdsAreThoseOfTransformers) {
  ASSERT_GT(Golden()["cases"].size(), 100u);
  for (const json& one : Golden()["cases"]) {
    const auto text = one["text"].get<std::string>();
    const auto ids = one["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(EncodeValues(Japanese(), text, {.add_special_tokens = false}), ids) << one["text"];
    EXPECT_EQ(EncodeValues(Japanese(), text, {.add_special_tokens = false, .parse_special_tokens = false}), ids) << one["text"];
    EXPECT_EQ(EncodeValues(Japanese(), text), one["processed"].get<std::vector<int32_t>>()) << one["text"];
    EXPECT_LE(text.size(), Japanese().MostTextBytes(ids.size())) << one["text"];
  }
}

TEST(Japanese, SpecialTokensAreCutOutOfTrustedTextAlone) {
  for (const json& one : Golden()["parsed"]) {
    const auto text = one["text"].get<std::string>();
    EXPECT_EQ(EncodeValues(Japanese(), text, {.add_special_tokens = false}), one["ids"].get<std::vector<int32_t>>()) << text;
    const auto plain = EncodeValues(Japanese(), text, {.add_special_tokens = false, .parse_special_tokens = false});
    for (const int32_t id : plain) EXPECT_FALSE(Japanese().IsSpecial(TokenId(id))) << text;
    EXPECT_EQ(DecodeText(Japanese(), Ids(plain)), text);
  }
}

TEST(Japanese, TextsAreThoseOfTransformers) {
  ASSERT_GT(Golden()["decodes"].size(), 100u);
  for (const json& one : Golden()["decodes"]) {
    const std::vector<TokenId> ids = Ids(one["ids"].get<std::vector<int32_t>>());
    EXPECT_EQ(DecodeText(Japanese(), ids), one["text"].get<std::string>()) << one["ids"];
  }
}

TEST(Japanese, ATextThatIsTooLongIsRefused) {
  const auto ids = Japanese().Encode(std::string(100, 'a'), {.max_word_bytes = 99});
  EXPECT_THAT(std::string(ids.status().message()), testing::HasSubstr("at most 99 can be tokenised"));
}

// A table of replacements that feeds itself.
TEST(Japanese, ReplacementsDoNotGrowWithoutBound) {
  std::string emoji = R"({"emoji": {"q": "rrrrrrrr", "r": "ssssssss"}, "emoji_inv": {}})";
  std::string words = Words();
  for (const std::string_view line : {"<|emoji1|>\n", "<|emoji2|>\n", "<|emoji3|>\n"}) words.erase(words.find(line), line.size());
  const auto tokenizer = Tokenizer::FromBlob(CompileJapaneseTokenizer(words, emoji).value()).value();
  EXPECT_TRUE(tokenizer->Encode("r").ok());
  EXPECT_THAT(std::string(tokenizer->Encode("qqqq").status().message()), testing::HasSubstr("make a text too long"));
}

TEST(Japanese, WhatIsMissingIsNamed) {
  const auto without = [](std::string text, std::string_view what) { return text.erase(text.find(what), what.size()); };
  const struct {
    std::string words, emoji, reason;
  } cases[] = {
      {"\xFF\n", Emoji(), "vocab.txt is not UTF-8"},
      {"a\r\nb\n", Emoji(), "vocab.txt: a carriage return"},
      {"a\n\nb\n", Emoji(), "vocab.txt: line 2 is empty"},
      {without(Words(), "<|segmenter|>\n"), Emoji(), "vocab.txt has no <|segmenter|>"},
      {without(Words(), "<|startoftext|>\n"), Emoji(), "vocab.txt has no <|startoftext|>"},
      {without(Words(), "<|nottoken|>\n"), Emoji(), "vocab.txt has no <|nottoken|>"},
      {Words(), "", "emoji.json: expected"},
      {Words(), "[]", "emoji.json: expected"},
      {Words(), R"({"emoji": {}, "emoji_inv": 3})", "emoji.json: expected"},
      {Words(), R"({"emoji": {"a": 3}, "emoji_inv": {}})", "emoji.json: expected"},
      {Words(), R"({"emoji": {}, "emoji_inv": {}})", "emoji.json: emoji_inv does not say what <|emoji1|> is"},
  };
  for (const auto& [words, emoji, reason] : cases) {
    const auto blob = CompileJapaneseTokenizer(words, emoji);
    EXPECT_EQ(blob.status().code(), absl::StatusCode::kInvalidArgument) << reason;
    EXPECT_THAT(std::string(blob.status().message()), testing::HasSubstr(reason));
  }
}

}  // namespace
}  // namespace moed
