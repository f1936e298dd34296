#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "core/base/status.h"
#include "nlohmann/json.hpp"
#include "tests/paths.h"
#include "tests/tokenizer/tokenizers.h"
#include "tools/pack/gguf/gguf_file.h"
#include "tools/pack/gguf/pre_tokenizers.h"
#include "tools/pack/gguf/tokenizer.h"

namespace moed {
namespace gguf_tokenizer_test {

using nlohmann::json;
using ::testing::HasSubstr;

using Entries = std::map<std::string, GgufValue>;

GgufMetadata Metadata(const Entries& entries) {
  GgufMetadata metadata;
  for (const auto& [key, value] : entries) metadata.Add(key, value);
  return metadata;
}

// The keys that a converter makes of a byte-level tokenizer.json.
Entries KeysOf(const json& tokenizer, const std::string& pre) {
  std::vector<std::string> texts, merges;
  std::vector<int64_t> types;
  const auto set = [&](size_t id, const std::string& text, int64_t type) {
    for (size_t next = texts.size(); next <= id; ++next) {
      texts.push_back("[PAD" + std::to_string(next) + "]");
      types.push_back(5);
    }
    texts[id] = text;
    types[id] = type;
  };
  for (const auto& [text, id] : tokenizer["model"]["vocab"].items()) set(id, text, 1);
  for (const json& token : tokenizer["added_tokens"]) set(token["id"], token["content"], token["special"] ? 3 : 4);
  for (const json& merge : tokenizer["model"]["merges"]) {
    merges.push_back(merge.is_string() ? merge.get<std::string>()
                                       : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  return {{"tokenizer.ggml.model", "gpt2"},
          {"tokenizer.ggml.pre", pre},
          {"tokenizer.ggml.tokens", texts},
          {"tokenizer.ggml.token_type", types},
          {"tokenizer.ggml.merges", merges}};
}

std::unique_ptr<Tokenizer> Made(const Entries& keys) {
  const auto text = TokenizerJson(Metadata(keys));
  EXPECT_TRUE(text.ok()) << text.status();
  return text.ok() ? Compiled(*text) : nullptr;
}

json DemoJson() { return json::parse(ReadFileText(SourcePath("models/tales-qwen/tokenizer.json"))); }

void ExpectVectors(const Tokenizer& tokenizer, const json& vectors) {
  ASSERT_FALSE(vectors["cases"].empty());
  for (const json& one : vectors["cases"]) {
    const auto text = one["text"].get<std::string>();
    const auto ids = one["ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(EncodeValues(tokenizer, text, {.add_special_tokens = false}), ids) << text;
    EXPECT_EQ(EncodeValues(tokenizer, text, {.add_special_tokens = false, .parse_special_tokens = false}),
              one.value("plain", ids))
        << text;
  }
  for (const json& one : vectors["decodes"]) {
    const std::vector<TokenId> ids = Ids(one["ids"].get<std::vector<int32_t>>());
    EXPECT_EQ(DecodeText(tokenizer, ids, true), one["text"].get<std::string>());
    EXPECT_EQ(DecodeText(tokenizer, ids, false), one["with_special"].get<std::string>());
  }
}

TEST(GgufTokenizerTest, ByteLevelIsThatOfTheModelItCameFrom) {
  const auto demo = Made(KeysOf(DemoJson(), "gpt-2"));
  ASSERT_NE(demo, nullptr);
  ExpectVectors(*demo, json::parse(ReadFileText(TestData("demo.vectors.json.xz"))));
  EXPECT_EQ(demo->vocabulary_size(), DemoTokenizer().vocabulary_size());

  const auto olmoe = Made(KeysOf(json::parse(ReadFileText(TestData("olmoe.tokenizer.json.xz"))), "olmo"));
  ASSERT_NE(olmoe, nullptr);
  const json vectors = json::parse(ReadFileText(TestData("olmoe.vectors.json.xz")));
  for (const json& one : vectors["cases"]) {
    const auto text = one["text"].get<std::string>();
    EXPECT_EQ(EncodeValues(*olmoe, text, {.add_special_tokens = false}), one["ids"].get<std::vector<int32_t>>()) << text;
  }
}

// Pieces by score; what is no piece becomes bytes.
Entries SentencePieceKeys() {
  std::vector<std::string> texts = {"<unk>", "<s>", "</s>"};
  std::vector<int64_t> types = {2, 3, 3};
  std::vector<double> scores = {0, 0, 0};
  for (int byte = 0; byte < 256; ++byte) {
    char text[7];
    std::snprintf(text, sizeof text, "<0x%02X>", byte);
    texts.emplace_back(text);
    types.push_back(6);
    scores.push_back(0);
  }
  const std::pair<std::string, double> pieces[] = {{"▁", -9},  {"a", -9},   {"b", -9},  {"c", -9},   {"ab", -1},
                                                   {"bc", -2}, {"abc", -3}, {"▁a", -4}, {"▁ab", -5}, {"▁bc", -6}};
  for (const auto& [text, score] : pieces) {
    texts.push_back(text);
    types.push_back(1);
    scores.push_back(score);
  }
  return {{"tokenizer.ggml.model", "llama"},
          {"tokenizer.ggml.tokens", texts},
          {"tokenizer.ggml.token_type", types},
          {"tokenizer.ggml.scores", scores},
          {"tokenizer.ggml.bos_token_id", uint64_t{1}},
          {"tokenizer.ggml.unknown_token_id", uint64_t{0}}};
}

// The order of the merges counts, not scores; no space comes before a text.
TEST(GgufTokenizerTest, PiecesOfSentencePieceMergeByAList) {
  Entries keys = SentencePieceKeys();
  keys["tokenizer.ggml.model"] = "gemma4";
  keys["tokenizer.ggml.merges"] = std::vector<std::string>{"b c", "▁ bc", "a b", "▁ a"};
  const auto made = Made(keys);
  ASSERT_NE(made, nullptr);
  constexpr int32_t kSpace = 259, kA = 260, kC = 262, kAb = 263, kBc = 264, kSpaceA = 266, kSpaceBc = 268;
  const std::pair<std::string, std::vector<int32_t>> cases[] = {
      {"abc", {1, kA, kBc}},
      {"abac", {1, kAb, kA, kC}},
      {"ab bc  a", {1, kAb, kSpaceBc, kSpace, kSpaceA}},
      {"bcé\n", {1, kBc, 3 + 0xC3, 3 + 0xA9, 3 + '\n'}},
  };
  for (const auto& [text, ids] : cases) EXPECT_EQ(EncodeValues(*made, text), ids) << text;
  EXPECT_EQ(DecodeText(*made, Ids({1, kAb, kSpaceBc, 3 + 0xC3, 3 + 0xA9})), "ab bcé");
  Entries of_sarvam = keys;
  of_sarvam["tokenizer.ggml.model"] = "gpt2";
  of_sarvam["tokenizer.ggml.pre"] = "sarvam-moe";
  EXPECT_EQ(EncodeValues(*Made(of_sarvam), "ab bc"), (std::vector<int32_t>{kAb, kSpaceBc})) << "without <s>";
  keys["tokenizer.ggml.add_space_prefix"] = true;
  EXPECT_THAT(std::string(TokenizerJson(Metadata(keys)).status().message()), HasSubstr("add_space_prefix"));
}

TEST(GgufTokenizerTest, SentencePieceMergesByScore) {
  const auto made = Made(SentencePieceKeys());
  ASSERT_NE(made, nullptr);
  constexpr int32_t kSpace = 259, kC = 262, kAb = 263, kAbc = 265, kSpaceBc = 268;
  const std::pair<std::string, std::vector<int32_t>> cases[] = {
      {"abc", {1, kSpace, kAbc}},           // ab, then abc before a piece with the space
      {"bc", {1, kSpaceBc}},                // bc, then with the space
      {"c<s>ab", {1, kSpace, kC, 1, 267}},  // a section of its own gets a space of its own: ab, then with the space
      {"bcé", {1, kSpaceBc, 3 + 0xC3, 3 + 0xA9}},
  };
  for (const auto& [text, ids] : cases) EXPECT_EQ(EncodeValues(*made, text), ids) << text;
  EXPECT_EQ(DecodeText(*made, Ids({1, kSpaceBc, kSpace, kAb})), "bc ab");

  Entries plain = SentencePieceKeys();
  plain.insert({{"tokenizer.ggml.add_space_prefix", false}, {"tokenizer.ggml.add_bos_token", false}});
  EXPECT_EQ(EncodeValues(*Made(plain), "abc"), (std::vector<int32_t>{kAbc}));
}

TEST(GgufTokenizerTest, MetadataSayWhatStandsAroundAText) {
  const auto encode = [](bool bos, bool eos) {
    Entries keys = KeysOf(DemoJson(), "qwen2");
    keys.insert({{"tokenizer.ggml.bos_token_id", uint64_t{1}},
                 {"tokenizer.ggml.eos_token_id", uint64_t{2}},
                 {"tokenizer.ggml.add_bos_token", bos},
                 {"tokenizer.ggml.add_eos_token", eos}});
    return EncodeValues(*Made(keys), "x");
  };
  const std::vector<int32_t> x = encode(false, false);
  ASSERT_EQ(x.size(), 1u);
  EXPECT_EQ(encode(true, false), (std::vector<int32_t>{1, x[0]}));
  EXPECT_EQ(encode(false, true), (std::vector<int32_t>{x[0], 2}));
  EXPECT_EQ(encode(true, true), (std::vector<int32_t>{1, x[0], 2}));
}

// Texts come back whole whatever cuts them; what differs is where they are cut.
TEST(GgufTokenizerTest, EveryPreTokenizerCuts) {
  const std::string text = "I'LL say: 12345 ducks,\r\n\r\n  Hello\tworld… 世界こんにちは ñandú x=[1];  \n";
  std::set<std::vector<int32_t>> results;
  for (const GgufPreTokenizer& row : GgufPreTokenizers()) {
    for (const std::string_view name : row.names) {
      Entries keys = KeysOf(DemoJson(), std::string(name));
      keys.insert({"tokenizer.ggml.add_bos_token", false});
      const auto made = Made(keys);
      ASSERT_NE(made, nullptr) << name;
      const std::vector<int32_t> ids = EncodeValues(*made, text);
      EXPECT_EQ(DecodeText(*made, Ids(ids)), text) << name;
      results.insert(ids);
    }
  }
  EXPECT_GE(results.size(), 3u);
}

TEST(GgufTokenizerTest, LongTextsOfOneKindAreCut) {
  for (const char* name : {"afmoe", "cohere2moe", "exaone-moe", "solar-open"}) {
    Entries keys = KeysOf(DemoJson(), name);
    keys.insert({"tokenizer.ggml.add_bos_token", false});
    const auto made = Made(keys);
    ASSERT_NE(made, nullptr) << name;
    for (const std::string piece : {"1", "a", "a b ", ".", " ", "\n", "世", "한 "}) {
      std::string text;
      while (text.size() < 100'000) text += piece;
      EXPECT_EQ(DecodeText(*made, Ids(EncodeValues(*made, text))), text) << name << " of " << piece;
    }
  }
}

TEST(GgufTokenizerTest, SaysWhatIsWrong) {
  const auto set = [](const std::string& key, GgufValue value) {
    return [=](Entries& keys) { keys.insert_or_assign("tokenizer.ggml." + key, value); };
  };
  const auto erase = [](const std::string& key) { return [=](Entries& keys) { keys.erase("tokenizer.ggml." + key); }; };
  using Texts = std::vector<std::string>;
  using Numbers = std::vector<int64_t>;
  const struct {
    std::function<void(Entries&)> damage;
    std::string expected;
  } cases[] = {
      {erase("model"), "key tokenizer.ggml.model is missing"},
      {set("model", "bert"), "tokenizer.ggml.model is \"bert\", known: gpt2, llama"},
      {erase("pre"), "key tokenizer.ggml.pre is missing"},
      {set("pre", "klingon"), "unknown pre-tokenizer \"klingon\" (key tokenizer.ggml.pre); known: gpt-2, "},
      {erase("merges"), "key tokenizer.ggml.merges is missing"},
      {set("merges", Texts{"\xff a"}), "tokenizer.ggml.merges[0] is not UTF-8"},
      {erase("tokens"), "key tokenizer.ggml.tokens is missing"},
      {set("tokens", uint64_t{3}), "key tokenizer.ggml.tokens is 3, allowed: an array of strings"},
      {set("tokens", Texts{}), "tokenizer.ggml.token_type has 4096 elements"},
      {erase("token_type"), "key tokenizer.ggml.token_type is missing"},
      {[](Entries& keys) { std::get<Numbers>(keys["tokenizer.ggml.token_type"])[7] = 9; }, "token_type[7] is 9, allowed: 1 to 6"},
      {[](Entries& keys) { std::get<Texts>(keys["tokenizer.ggml.tokens"])[7] = "\xc3"; }, "tokens[7] is \"\\xc3\""},
      {[](Entries& keys) {
         auto& texts = std::get<Texts>(keys["tokenizer.ggml.tokens"]);
         texts[8] = texts[7];
       },
       "tokenizer.ggml.tokens[7] and [8] are both"},
      {[&](Entries& keys) { set("add_bos_token", true)(keys); }, "key tokenizer.ggml.bos_token_id is missing"},
      {[&](Entries& keys) {
         set("add_bos_token", true)(keys);
         set("bos_token_id", uint64_t{1} << 40)(keys);
       },
       "tokenizer.ggml.bos_token_id is 1099511627776, allowed: a whole number from 0 to"},
      {set("add_bos_token", uint64_t{1}), "key tokenizer.ggml.add_bos_token is 1, allowed: a bool"},
  };
  for (const auto& [damage, expected] : cases) {
    Entries keys = KeysOf(DemoJson(), "gpt-2");
    damage(keys);
    EXPECT_THAT(std::string(TokenizerJson(Metadata(keys)).status().message()), HasSubstr(expected));
  }
  Entries llama = SentencePieceKeys();
  llama["tokenizer.ggml.scores"] = std::vector<double>{1};
  EXPECT_THAT(std::string(TokenizerJson(Metadata(llama)).status().message()), HasSubstr("tokenizer.ggml.scores has 1 elements"));
}

// Vocabularies whose licences keep them out of the project: NAME.gguf, and llama.cpp's texts and ids beside it, NAME.gguf.inp and
// NAME.gguf.out.
TEST(GgufTokenizerTest, Directory) {
  const char* directory = std::getenv("MOED_GGUF_VOCABULARIES");
  if (directory == nullptr)
    GTEST_SKIP() << "set MOED_GGUF_VOCABULARIES to a directory of NAME.gguf, NAME.gguf.inp and NAME.gguf.out";
  constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string path = entry.path();
    if (!path.ends_with(".gguf")) continue;
    SCOPED_TRACE(path);
    auto file = OpenBuffered(path);
    ASSERT_TRUE(file.ok()) << file.status();
    const auto read = ReadGguf(std::shared_ptr<const RandomAccessFile>(*std::move(file)));
    ASSERT_TRUE(read.ok()) << read.status();
    const auto text = TokenizerJson(read->metadata);
    ASSERT_TRUE(text.ok()) << text.status();
    const auto tokenizer = Compiled(*text);
    ASSERT_NE(tokenizer, nullptr);
    std::string inputs = ReadFileText(path + ".inp");
    std::istringstream outputs(ReadFileText(path + ".out"));
    for (std::string line; std::getline(outputs, line); ++found) {
      std::istringstream numbers(line);
      const std::vector<int32_t> ids{std::istream_iterator<int32_t>(numbers), {}};
      const size_t end = inputs.find(kSeparator);
      const std::string input = inputs.substr(0, end);
      inputs.erase(0, end == std::string::npos ? end : end + kSeparator.size());
      EXPECT_EQ(EncodeValues(*tokenizer, input, {.add_special_tokens = false, .parse_special_tokens = false}), ids) << input;
    }
  }
  EXPECT_GT(found, 0) << directory;
}

}  // namespace gguf_tokenizer_test
}  // namespace moed
