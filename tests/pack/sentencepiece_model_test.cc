// spiece.model against SentencePiece itself (tests/tokenizer/make_sentencepiece_vectors.py), and whatever else its bytes are.
#include "tools/pack/sentencepiece_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/escaping.h"
#include "core/base/status.h"
#include "core/tokenizer/tokenizer.h"
#include "tests/base/damaged_bytes.h"
#include "tests/file_text.h"
#include "tests/pack/tiny_checkpoint.h"
#include "tests/paths.h"
#include "tools/pack/checkpoint.h"

namespace moed {
namespace sentencepiece_model_test {

const nlohmann::json& Golden() {
  static const auto golden = nlohmann::json::parse(ReadFileText(SourcePath("tests/pack/data/sentencepiece.vectors.json.xz")));
  return golden;
}

std::string Model() {
  std::string model;
  EXPECT_TRUE(absl::Base64Unescape(Golden()["model"].get<std::string>(), &model));
  return model;
}

TEST(SentencePieceModel, IdsAreThoseOfSentencePiece) {
  constexpr int kExtra = 7;
  const auto json = SentencePieceTokenizer(Model(), kExtra);
  ASSERT_TRUE(json.ok()) << json.status();
  const auto tokenizer = Tokenizer::FromBlob(CompileTokenizer(*json).value()).value();
  const int pieces = Golden()["pieces"].get<int>();
  EXPECT_EQ(tokenizer->vocabulary_size(), pieces + kExtra);
  for (const auto& one : Golden()["cases"]) {
    std::vector<int32_t> ids;
    const auto encoded = tokenizer->Encode(one["text"].get<std::string>());
    ASSERT_TRUE(encoded.ok()) << encoded.status();
    for (const TokenId id : *encoded) ids.push_back(id.value());
    auto expected = one["ids"].get<std::vector<int32_t>>();
    expected.push_back(1);  // the end
    EXPECT_EQ(ids, expected) << one["text"];
  }
  const auto extra = tokenizer->Encode("<extra_id_0><extra_id_6>", {.add_special_tokens = false});
  ASSERT_TRUE(extra.ok());
  EXPECT_EQ(*extra, (std::vector{TokenId(pieces + kExtra - 1), TokenId(pieces)}));
}

// A field of the normalizer, the trainer, or a piece, behind the others.
std::string With(uint32_t message, std::string_view fields) {
  return StrCat(Model(), std::string(1, static_cast<char>(message << 3 | 2)), std::string(1, static_cast<char>(fields.size())),
                fields);
}

TEST(SentencePieceModel, WhatT5sHasNotIsRefusedByName) {
  const std::pair<std::string, const char*> refusals[] = {
      {With(2, "\x18\x02"), "model_type = 2"},
      {With(2, "\xC0\x01\x01"), "treat_whitespace_as_suffix = 1"},
      {With(2, "\x98\x02\x01"), "byte_fallback = 1"},
      {With(3, std::string_view("\x18\x00", 2)), "add_dummy_prefix = 0"},
      {With(3, std::string_view("\x20\x00", 2)), "remove_extra_whitespaces = 0"},
      {With(3, std::string_view("\x28\x00", 2)), "escape_whitespaces = 0"},
      {With(1, "\x0A\x01z\x18\x04"), "is of type 4"},
      {With(1, "\x0A\x01z\x18\x02"), "two pieces are UNKNOWN"},
      {With(1, "\x0A\x01\xFF"), "is no text"},
      {With(1, std::string_view("\x0A\x01z\x15\x00\x00\xC0\x7F", 8)), "has the score nan"},
      {"", "no piece is UNKNOWN"},
      {"{}", "no protobuf, or one that is cut off"}};
  for (const auto& [model, reason] : refusals) {
    const auto json = SentencePieceTokenizer(model, 0);
    EXPECT_EQ(json.status().code(), absl::StatusCode::kInvalidArgument) << reason;
    EXPECT_THAT(std::string(json.status().message()), testing::HasSubstr(reason));
  }
}

void WriteFile(const std::string& path, std::string_view text) { std::ofstream(path, std::ios::binary) << text; }

TEST(SentencePieceModel, AFolderMayHaveItInPlaceOfTokenizerJson) {
  TemporaryFolder folder;
  const std::string path = folder / "in";
  MakeTinyCheckpoint("switch_transformers").Write(path);
  std::filesystem::remove(path + "/tokenizer.json");
  WriteFile(path + "/spiece.model", Model());
  const auto tokens = [&] {
    const auto checkpoint = Checkpoint::Open(path);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    return Tokenizer::FromBlob(checkpoint->CompiledTokenizer().value()).value()->vocabulary_size();
  };
  EXPECT_EQ(tokens(), Golden()["pieces"].get<int>() + 100);
  WriteFile(path + "/tokenizer_config.json", R"({"extra_ids": 3})");
  EXPECT_EQ(tokens(), Golden()["pieces"].get<int>() + 3);
  WriteFile(path + "/tokenizer_config.json", R"({"extra_ids": -1})");
  EXPECT_THAT(std::string(Checkpoint::Open(path).status().message()), testing::HasSubstr("extra_ids = -1, expected 0 to"));
}

TEST(SentencePieceModel, DamageIsRefusedOrATokenizer) {
  const auto use = [](std::string damaged, size_t) {
    if (const auto json = SentencePieceTokenizer(damaged, 2); json.ok()) CompileTokenizer(*json).IgnoreError();
  };
  const std::string model = Model();
  ForEachTruncation(model, {.step = 7}, use);
  ForEachFlip(model, {.step = 11}, 1, use);
}

}  // namespace sentencepiece_model_test
}  // namespace moed
