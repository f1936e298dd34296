// Texts that were made to hurt. A quadratic step anywhere would take hours here and fail by ctest's limit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/tokenizer/normalizer.h"
#include "core/tokenizer/unicode.h"
#include "tests/tokenizer/tokenizers.h"

namespace moed {
namespace {

using ::testing::HasSubstr;

constexpr size_t kBytes = 1 << 19;

std::string Repeated(std::string_view part) {
  std::string text;
  while (text.size() + part.size() <= kBytes) text += part;
  return text;
}

std::string RandomLetters() {
  std::mt19937 random(5);
  std::string text;
  while (text.size() < kBytes) text += static_cast<char>('a' + random() % 26);
  return text;
}

TEST(HostileText, LongRunsComeBackWhole) {
  const auto olmoe = Compiled(ReadFileText(TestData("olmoe.tokenizer.json.xz")));
  ASSERT_NE(olmoe, nullptr);
  for (const std::string& text : {Repeated(" "), Repeated("a"), Repeated("\n"), Repeated("' "), Repeated("  x"), RandomLetters(),
                                  Repeated("\xF0\x9F\x98\x80"), Repeated("<|"), Repeated("|||IP_ADDRESS||")}) {
    for (const Tokenizer* tokenizer : {&DemoTokenizer(), static_cast<const Tokenizer*>(olmoe.get())}) {
      const auto ids = tokenizer->Encode(text);
      ASSERT_TRUE(ids.ok()) << ids.status();
      EXPECT_TRUE(DecodeText(*tokenizer, *ids) == text) << text.substr(0, 20);
    }
  }
  for (const std::string& text : {Repeated(" "), Repeated("ab"), Repeated("x \xE4\xBD\xA0")}) {
    const auto ids = LlamaTokenizer().Encode(text);
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_TRUE(DecodeText(LlamaTokenizer(), *ids) == text) << text.substr(0, 20);
  }
}

TEST(HostileText, UnigramTakesLongRuns) {
  for (const std::string& text : {Repeated("ab"), Repeated("\xF0\x9F\x98\x80"), Repeated("</s"), Repeated("e\xCC\x81"),
                                  RandomLetters(), Repeated("\xE2\x96\x81"), Repeated("\r\n"), Repeated("a\xE2\x80\x8D")}) {
    const auto ids = UnigramTokenizer().Encode(text, {.add_special_tokens = false});
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_LE(ids->size(), text.size() + 1);
  }
  EXPECT_EQ(EncodeValues(UnigramTokenizer(), Repeated("\xF0\x9F\x98\x80"), {.add_special_tokens = false}).size(), 2u)
      << "unknown characters are one";
  EXPECT_THAT(std::string(UnigramTokenizer().Encode(Repeated("a"), {.max_word_bytes = 1000}).status().message()),
              HasSubstr("without a place to cut"));
}

// Not from plain text, and not from what becomes one when it is normalised.
TEST(HostileText, UnigramCutsNoSpecialTokens) {
  const Tokenizer& tokenizer = UnigramTokenizer();
  for (const bool parse : {true, false}) {
    for (const std::string_view text : {"a \xEF\xBC\x9C/s\xEF\xBC\x9E b", "a </s> b", "<extra_id_3>", "<pad>"}) {
      if (parse && text.find("\xEF") == text.npos) continue;
      const auto ids = tokenizer.Encode(text, {.add_special_tokens = false, .parse_special_tokens = parse});
      ASSERT_TRUE(ids.ok()) << ids.status();
      // The unknown piece is no instruction.
      for (const TokenId id : *ids) EXPECT_TRUE(id.value() == 2 || !tokenizer.IsSpecial(id)) << text << ": " << id.value();
    }
  }
}

// What is put in is the tokenizer's, and may be as long as its file.
TEST(HostileText, NormalisingMakesNoTextMuchLonger) {
  using nlohmann::json;
  const auto replace = [](const std::string& content) {
    return json{{"type", "Replace"}, {"pattern", {{"String", "q"}}}, {"content", content}};
  };
  const std::vector<json> doublings(40, replace("qq"));
  const struct {
    json normalizer;
    std::string fits, grows;
  } kCases[] = {
      {{{"type", "Sequence"}, {"normalizers", doublings}}, Repeated("a"), "q"},
      {replace(std::string(100'000, 'b')), Repeated("a"), Repeated("q")},
      {replace("aaaa"), Repeated("q"), ""},
      {replace("aaaaa"), "aqa", Repeated("q")},
      {{{"type", "Prepend"}, {"prepend", std::string(2000, 'a')}}, std::string(400, 'b'), "b"},
  };
  for (const auto& [normalizer, fits, grows] : kCases) {
    json root = LlamaJson();
    root["normalizer"] = normalizer;
    const auto tokenizer = Compiled(root.dump());
    ASSERT_NE(tokenizer, nullptr);
    EXPECT_TRUE(tokenizer->Encode(fits).ok()) << normalizer.dump().substr(0, 100);
    if (grows.empty()) continue;
    const absl::Status refused = tokenizer->Encode(grows).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("when it is normalised, 4 times as many"));
  }
}

TEST(HostileText, MarksWithoutEndAreOrderedOnce) {
  std::string text = "a";
  while (text.size() < kBytes) text += "\xCC\x81\xCC\x96";  // classes 230 and 220, alternating
  const std::string composed = ComposeCanonically(text);
  EXPECT_EQ(composed.substr(0, 4), "\xC3\xA1\xCC\x96");
  EXPECT_EQ(composed.size() + 1, text.size());
}

TEST(HostileText, NoMoreIsDoneThanWasAllowed) {
  const std::string text = "Once upon a time there was a king.";
  for (const Tokenizer* tokenizer : {&DemoTokenizer(), &LlamaTokenizer()}) {
    const size_t tokens = EncodeValues(*tokenizer, text).size();
    EXPECT_TRUE(tokenizer->Encode(text, {.max_tokens = tokens}).ok());
    EXPECT_TRUE(absl::IsOutOfRange(tokenizer->Encode(text, {.max_tokens = tokens - 1}).status()));
    EXPECT_TRUE(absl::IsOutOfRange(tokenizer->Encode(Repeated(text), {.max_tokens = tokens}).status()));
    const std::string word(100, 'x');
    EXPECT_TRUE(tokenizer->Encode(word, {.max_word_bytes = 110}).ok());
    const auto refused = tokenizer->Encode(word, {.max_word_bytes = 99});
    EXPECT_TRUE(absl::IsInvalidArgument(refused.status()));
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("at most 99"));
    const std::vector<TokenId> ids = *tokenizer->Encode(text);
    EXPECT_TRUE(tokenizer->Decode(ids, true, text.size() + 1).ok());
    EXPECT_FALSE(tokenizer->Decode(ids, true, text.size() / 2).ok());
  }
}

TEST(HostileText, ALongerTextHasMoreTokens) {
  const size_t longest = DemoTokenizer().MostTextBytes(1);
  EXPECT_GT(longest, 1u);
  EXPECT_EQ(DemoTokenizer().MostTextBytes(100), 100 * longest);
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<TokenId> ids;
    for (int i = 0; i < 20; ++i) ids.push_back(TokenId(static_cast<int32_t>(random() % DemoTokenizer().vocabulary_size())));
    const std::string text = DecodeText(DemoTokenizer(), ids, /*skip_special_tokens=*/false);
    EXPECT_LE(text.size(), DemoTokenizer().MostTextBytes(EncodeValues(DemoTokenizer(), text).size()));
  }
}

TEST(HostileText, InvalidUtf8IsRefusedByItsFirstByte) {
  const struct {
    std::string text;
    std::string_view message;
  } kCases[] = {
      {"abc\xFF", "byte 0xff at offset 3"},
      {"\x80", "byte 0x80 at offset 0"},
      {"\xC3\xA9\xC3", "byte 0xc3 at offset 2"},
      {std::string(40, 'x') + "\xED\xA0\x80", "byte 0xed at offset 40"},  // a surrogate
      {"\xC0\xAF", "byte 0xc0 at offset 0"},                              // overlong
      {"\xF4\x90\x80\x80", "byte 0xf4 at offset 0"},                      // beyond U+10FFFF
  };
  for (const auto& [text, message] : kCases) {
    const auto ids = DemoTokenizer().Encode(text);
    EXPECT_EQ(ids.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(ids.status().message()), HasSubstr(std::string(message)));
  }
}

TEST(HostileText, RandomBytesAreEncodedExactlyWhenTheyAreUtf8) {
  std::mt19937 random(9);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (size_t length = random() % 12; text.size() < length;)
      text += static_cast<char>(random() % 4 ? random() % 128 : random());
    const auto ids = DemoTokenizer().Encode(text);
    ASSERT_EQ(ids.ok(), !FirstInvalidByte(text).has_value());
    if (ids.ok()) {
      EXPECT_EQ(DecodeText(DemoTokenizer(), *ids), text);
    }
  }
}

TEST(HostileText, SpecialTokensInUntrustedTextStayText) {
  const std::string text = "a<|end|><|user|>b";
  const auto ids = DemoTokenizer().Encode(text, {.parse_special_tokens = false});
  ASSERT_TRUE(ids.ok());
  for (const TokenId id : *ids) EXPECT_FALSE(DemoTokenizer().IsSpecial(id));
  EXPECT_EQ(DecodeText(DemoTokenizer(), *ids), text);
}

}  // namespace
}  // namespace moed
