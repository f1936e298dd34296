// tiktoken.model: merges follow from ranks, and the tokens behind them have the names that tokenizer_config.json says.
#include "tools/pack/tiktoken_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "core/base/status.h"
#include "core/tokenizer/tokenizer.h"
#include "tests/pack/tiny_checkpoint.h"
#include "tools/pack/checkpoint.h"

namespace moed {
namespace tiktoken_model_test {

using nlohmann::json;
using ::testing::HasSubstr;

// Every byte, then these.
std::string Model(const std::vector<std::string>& more) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  tokens.insert(tokens.end(), more.begin(), more.end());
  std::string model;
  for (size_t rank = 0; rank < tokens.size(); ++rank) model += StrCat(absl::Base64Escape(tokens[rank]), " ", rank, "\n");
  return model;
}

// No two of the last one's parts are a token, so no merge makes it: a text that is it as a whole is.
const std::vector<std::string> kMore = {"an", "na", "ba", "ana", "banana", " b", "\xe4\xb8", "\xe4\xb8\xad", "xyz"};

json Settings(int first) {
  const std::string end = std::to_string(first + 1), tool = std::to_string(first + 3);
  return {{"tokenizer_class", "TikTokenTokenizer"},
          {"added_tokens_decoder",
           {{end, {{"content", "[EOS]"}, {"special", true}}}, {tool, {{"content", "<|tool|>"}, {"special", false}}}}}};
}

TEST(TiktokenModel, LowerRanksAreMergedFirst) {
  const int first = 256 + static_cast<int>(kMore.size());
  const auto made = TiktokenTokenizer(Model(kMore), Settings(first).dump());
  ASSERT_TRUE(made.ok()) << made.status();
  const auto tokenizer = Tokenizer::FromBlob(CompileTokenizer(*made).value()).value();
  EXPECT_EQ(tokenizer->vocabulary_size(), first + 256);
  const auto ids = [&](std::string_view text) {
    std::vector<int> numbers;
    const std::vector<TokenId> encoded = tokenizer->Encode(text).value();
    for (const TokenId id : encoded) numbers.push_back(id.value());
    return numbers;
  };
  EXPECT_EQ(ids("ana"), (std::vector<int>{259})) << "an, then ana";
  EXPECT_EQ(ids("banan"), (std::vector<int>{'b', 256, 256})) << "an is before ba";
  EXPECT_EQ(ids("banana"), (std::vector<int>{260})) << "as a whole, whatever merges make of it";
  EXPECT_EQ(ids("xyz"), (std::vector<int>{264}));
  EXPECT_EQ(ids("xyzx"), (std::vector<int>{'x', 'y', 'z', 'x'}));
  EXPECT_EQ(ids("\xe4\xb8\xad"), (std::vector<int>{263}));
  EXPECT_EQ(ids("an[EOS]an"), (std::vector<int>{256, first + 1, 256}));
  EXPECT_EQ(ids("<|tool|>"), (std::vector<int>{first + 3}));
  EXPECT_EQ(ids(StrCat("<|reserved_token_", first, "|>")), (std::vector<int>{first}));
}

TEST(TiktokenModel, WhatIsNoSuchFileIsNamed) {
  const std::string good = Model(kMore), settings = Settings(256 + static_cast<int>(kMore.size())).dump();
  const auto error = [](std::string_view model, std::string_view said) {
    return std::string(TiktokenTokenizer(model, said).status().message());
  };
  EXPECT_THAT(error(good + "?? 265\n", settings), HasSubstr("line 266"));
  EXPECT_THAT(error(good + "YWJj 9\n", settings), HasSubstr("rank 265"));
  EXPECT_THAT(error(good + "eHl6 265\n", settings), HasSubstr("same"));
  EXPECT_THAT(error("YQ== 0\n", settings), HasSubstr("byte 0 has no token"));
  EXPECT_THAT(error(good, R"({"tokenizer_class": "QWenTokenizer"})"), HasSubstr("tokenizer_class"));
  EXPECT_THAT(error(good, Settings(600).dump()), HasSubstr("added token 601"));
  EXPECT_THAT(error(good, R"({"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": null})"),
              HasSubstr("added_tokens_decoder of tokenizer_config.json is null"));
}

TEST(TiktokenModel, AFolderMayHaveIt) {
  const TemporaryFolder folder;
  MakeTinyCheckpoint("kimi_k2").Write(folder / "in");
  std::filesystem::remove(folder / "in/tokenizer.json");
  WriteContents(folder / "in/tiktoken.model", Model(kMore));
  WriteContents(folder / "in/tokenizer_config.json", Settings(256 + static_cast<int>(kMore.size())).dump());
  const auto checkpoint = Checkpoint::Open(folder / "in");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_TRUE(checkpoint->CompiledTokenizer().ok());
}

}  // namespace tiktoken_model_test
}  // namespace moed
