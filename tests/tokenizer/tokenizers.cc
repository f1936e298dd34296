#include "tests/tokenizer/tokenizers.h"

#include <gtest/gtest.h>

#include "tests/paths.h"

namespace moed {

std::string TestData(std::string_view name) { return SourcePath("tests/tokenizer/data/") + std::string(name); }

std::unique_ptr<Tokenizer> Compiled(std::string_view tokenizer_json) {
  auto blob = CompileTokenizer(tokenizer_json);
  EXPECT_TRUE(blob.ok()) << blob.status();
  if (!blob.ok()) return nullptr;
  auto tokenizer = Tokenizer::FromBlob(*std::move(blob));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

const Tokenizer& DemoTokenizer() {
  static const Tokenizer& tokenizer = *Compiled(ReadFileText(SourcePath("models/tales-qwen/tokenizer.json"))).release();
  return tokenizer;
}

nlohmann::json LlamaJson() {
  const auto vectors = nlohmann::json::parse(ReadFileText(TestData("features.vectors.json.xz")));
  for (const auto& feature : vectors["tokenizers"]) {
    if (feature["name"] == "llama") return feature["tokenizer"];
  }
  ADD_FAILURE() << "features.vectors.json.xz has no tokenizer 'llama'";
  return {};
}

nlohmann::json UnigramJson() {
  return nlohmann::json::parse(ReadFileText(TestData("unigram.vectors.json.xz")))["tokenizers"][0]["tokenizer"];
}

const Tokenizer& UnigramTokenizer() {
  static const Tokenizer& tokenizer = *Compiled(UnigramJson().dump()).release();
  return tokenizer;
}

const Tokenizer& LlamaTokenizer() {
  static const Tokenizer& tokenizer = *Compiled(LlamaJson().dump()).release();
  return tokenizer;
}

std::vector<int32_t> Values(const std::vector<TokenId>& ids) {
  std::vector<int32_t> values;
  for (const TokenId id : ids) values.push_back(id.value());
  return values;
}

std::vector<TokenId> Ids(const std::vector<int32_t>& values) {
  std::vector<TokenId> ids;
  for (const int32_t value : values) ids.push_back(TokenId(value));
  return ids;
}

std::vector<int32_t> EncodeValues(const Tokenizer& tokenizer, std::string_view text, const EncodeOptions& options) {
  const auto ids = tokenizer.Encode(text, options);
  EXPECT_TRUE(ids.ok()) << ids.status();
  return ids.ok() ? Values(*ids) : std::vector<int32_t>{};
}

std::string DecodeText(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip_special_tokens) {
  const auto text = tokenizer.Decode(ids, skip_special_tokens);
  EXPECT_TRUE(text.ok()) << text.status();
  return text.ok() ? *text : "";
}

}  // namespace moed
