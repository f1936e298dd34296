// Exactly the ids and texts of the reference implementation.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "core/tokenizer/unicode.h"
#include "tests/tokenizer/tokenizers.h"

namespace moed {
namespace {

using nlohmann::json;

std::vector<ByteRange> EveryThirdCharacter(std::string_view text) {
  std::vector<ByteRange> ranges;
  size_t character = 0;
  for (size_t at = 0, bytes; at < text.size(); at += bytes) {
    bytes = FirstCharacterBytes(text.substr(at));
    if (character++ % 3 == 1) ranges.push_back({at, at + bytes});
  }
  return ranges;
}

void ExpectCases(const Tokenizer& tokenizer, const json& cases) {
  for (const json& one : cases) {
    const auto text = one["text"].get<std::string>();
    const auto ids = one["ids"].get<std::vector<int32_t>>();
    const auto expect = [&](const char* key, const EncodeOptions& options) {
      EXPECT_EQ(EncodeValues(tokenizer, text, options), one.value(key, ids)) << key << " of " << one["text"];
    };
    expect("ids", {.add_special_tokens = false});
    expect("plain", {.add_special_tokens = false, .parse_special_tokens = false});
    expect("processed", {});
    // What is foreign cuts no word. Of a text that is foreign as a whole nothing is special.
    const std::vector<ByteRange> whole = {{0, text.size()}}, some = EveryThirdCharacter(text);
    expect("plain", {.add_special_tokens = false, .foreign = whole});
    if (!one.contains("plain")) expect("ids", {.add_special_tokens = false, .foreign = some});
  }
}

void ExpectDecodes(const Tokenizer& tokenizer, const json& decodes) {
  for (const json& one : decodes) {
    const std::vector<TokenId> ids = Ids(one["ids"].get<std::vector<int32_t>>());
    EXPECT_EQ(DecodeText(tokenizer, ids, true), one["text"].get<std::string>()) << one["ids"];
    EXPECT_EQ(DecodeText(tokenizer, ids, false), one["with_special"].get<std::string>()) << one["ids"];
  }
}

TEST(Vectors, Demo) {
  const json vectors = json::parse(ReadFileText(TestData("demo.vectors.json.xz")));
  ExpectCases(DemoTokenizer(), vectors["cases"]);
  ExpectDecodes(DemoTokenizer(), vectors["decodes"]);
}

TEST(Vectors, Olmoe) {
  const auto tokenizer = Compiled(ReadFileText(TestData("olmoe.tokenizer.json.xz")));
  ASSERT_NE(tokenizer, nullptr);
  const json vectors = json::parse(ReadFileText(TestData("olmoe.vectors.json.xz")));
  ExpectCases(*tokenizer, vectors["cases"]);
  ExpectDecodes(*tokenizer, vectors["decodes"]);
}

TEST(Vectors, EachFeature) {
  const json vectors = json::parse(ReadFileText(TestData("features.vectors.json.xz")));
  ASSERT_GT(vectors["tokenizers"].size(), 50u);
  for (const json& feature : vectors["tokenizers"]) {
    SCOPED_TRACE(feature["name"].get<std::string>());
    const auto tokenizer = Compiled(feature["tokenizer"].dump());
    ASSERT_NE(tokenizer, nullptr);
    ExpectCases(*tokenizer, feature["cases"]);
    ExpectDecodes(*tokenizer, feature["decodes"]);
  }
}

TEST(Vectors, Unigram) {
  const json vectors = json::parse(ReadFileText(TestData("unigram.vectors.json.xz")));
  ASSERT_EQ(vectors["tokenizers"].size(), 3u);
  for (const json& one : vectors["tokenizers"]) {
    SCOPED_TRACE(one["name"].get<std::string>());
    const auto tokenizer = Compiled(one["tokenizer"].dump());
    ASSERT_NE(tokenizer, nullptr);
    ExpectCases(*tokenizer, one["cases"]);
    ExpectDecodes(*tokenizer, one["decodes"]);
  }
}

TEST(Vectors, CharactersThatPcre2DoesNotKnow) {
  const json vectors = json::parse(ReadFileText(TestData("newer_characters.vectors.json.xz")));
  ASSERT_EQ(vectors["tokenizers"].size(), 18u);
  for (const json& one : vectors["tokenizers"]) {
    SCOPED_TRACE(one["name"].get<std::string>());
    const auto tokenizer = Compiled(one["tokenizer"].dump());
    ASSERT_NE(tokenizer, nullptr);
    ExpectCases(*tokenizer, one["cases"]);
  }
}

// Vocabularies whose licences keep them out of the project: NAME.vectors.json {"cases": [{"text", "ids"}]} beside
// NAME.tokenizer.json.xz; OLMoE's tokenizer is the one that the project carries.
TEST(Vectors, Directory) {
  const char* directory = std::getenv("MOED_TOKENIZER_VECTORS");
  if (directory == nullptr)
    GTEST_SKIP() << "set MOED_TOKENIZER_VECTORS to a directory of NAME.tokenizer.json.xz and NAME.vectors.json";
  constexpr std::string_view kSuffix = ".vectors.json";
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    std::string name = entry.path().filename();
    if (!name.ends_with(kSuffix)) continue;
    name.resize(name.size() - kSuffix.size());
    SCOPED_TRACE(name);
    std::string packed = entry.path().parent_path() / (name + ".tokenizer.json.xz");
    if (!std::filesystem::exists(packed)) packed = TestData(name + ".tokenizer.json.xz");
    const auto tokenizer = Compiled(ReadFileText(packed));
    ASSERT_NE(tokenizer, nullptr);
    const json vectors = json::parse(ReadFileText(entry.path()));
    ASSERT_FALSE(vectors["cases"].empty());
    for (const json& one : vectors["cases"]) {
      EXPECT_EQ(EncodeValues(*tokenizer, one["text"].get<std::string>(), {.add_special_tokens = false}),
                one["ids"].get<std::vector<int32_t>>())
          << one["text"];
    }
    ++found;
  }
  EXPECT_GT(found, 0) << directory << " has no *.vectors.json";
}

}  // namespace
}  // namespace moed
