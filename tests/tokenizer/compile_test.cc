// What tokenizer.json may ask for, and how the rest is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tokenizer/tokenizers.h"

namespace moed {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// The small Llama tokenizer with the value at `path` replaced.
std::string With(const char* path, const json& value) {
  json root = LlamaJson();
  root[json::json_pointer(path)] = value;
  return root.dump();
}

json Steps(size_t count, const char* type) { return std::vector<json>(count, {{"type", type}}); }

// Each makes a text of "a" twice as long.
json Doubling(size_t count) {
  return std::vector<json>(count, {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}});
}

TEST(Compile, RefusalsNameThePartAndWhatIsSupported) {
  const struct {
    const char* path;
    json value;
    std::vector<const char*> named;
  } kCases[] = {
      {"/model/type", "WordPiece", {"WordPiece", "BPE", "Unigram"}},
      {"/model/dropout", 0.1, {"model.dropout", "null"}},
      {"/model/continuing_subword_prefix", "##", {"model.continuing_subword_prefix"}},
      {"/model/end_of_word_suffix", "</w>", {"model.end_of_word_suffix"}},
      {"/model/unk_token", "nowhere", {"model.unk_token", "nowhere"}},
      {"/model/fuse_unk", 3, {"model.fuse_unk", "true, false"}},
      {"/model/novelty", 1, {"novelty", "byte_fallback"}},
      {"/model/vocab/a", "x", {"model.vocab", "'a'"}},
      {"/model/vocab/a", 1u << 30, {"model.vocab", "'a'"}},
      {"/model/vocab/a", 0, {"model.vocab", "same id 0"}},
      {"/model/vocab", json::array(), {"model.vocab"}},
      {"/model/merges", "ab", {"model.merges"}},
      {"/model/merges/0", "a b c", {"model.merges[0]"}},
      {"/model/merges/1", json::array({"a"}), {"model.merges[1]"}},
      {"/model/merges/2", json::array({"q", "q"}), {"model.merges[2]", "'q'"}},
      {"/normalizer", {{"type", "BertNormalizer"}}, {"normalizer", "BertNormalizer", "NFC", "Prepend", "Replace"}},
      {"/normalizer/normalizers/0", {{"type", "NFKC"}}, {"NFKC", "NFC"}},
      {"/normalizer/normalizers/0/more", 1, {"normalizer.Prepend", "more"}},
      {"/pre_tokenizer", {{"type", "Whitespace"}}, {"pre_tokenizer", "Whitespace", "ByteLevel", "Split", "Digits", "Metaspace"}},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "\\W+"}}}, {"behavior", "Isolated"}, {"invert", false}},
       {"\\W"}},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "a*"}}}, {"behavior", "Isolated"}, {"invert", false}},
       {"a*", "empty"}},
      {"/pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Odd"}, {"invert", false}},
       {"Odd", "Isolated"}},
      {"/pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}, {"decoder", "ByteLevel"}},
      {"/post_processor", {{"type", "BertProcessing"}}, {"post_processor", "BertProcessing", "TemplateProcessing"}},
      {"/post_processor/single", json::array(), {"post_processor.TemplateProcessing.single", "one Sequence"}},
      {"/post_processor/special_tokens", json::object(), {"special_tokens", "'<s>'"}},
      {"/post_processor/special_tokens/<s>/ids/0", 1000000, {"id is outside the vocabulary"}},
      {"/decoder", nullptr, {"decoder null"}},
      {"/decoder", {{"type", "WordPiece"}}, {"decoder", "WordPiece", "ByteLevel", "Fuse"}},
      {"/decoder", {{"type", "ByteLevel"}}, {"decoder", "pre_tokenizer"}},
      {"/decoder/decoders/2", {{"type", "ByteFallback"}}, {"decoder", "order"}},
      {"/decoder/decoders/3/stop", 1, {"decoder.Strip.stop"}},
      {"/added_tokens/0/id", 7, {"added_tokens[0].id"}},
      {"/added_tokens/0/content", "", {"added_tokens[0].content"}},
      {"/added_tokens/1/content", "<s>", {"added_tokens[1]", "twice"}},
      {"/added_tokens/1/content", std::string(1025, 'x'), {"added_tokens[1].content", "at most 1024 bytes"}},
      {"/normalizer/normalizers", Steps(65, "NFC"), {"65 steps", "at most 64"}},
      {"/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", Steps(65, "Digits")}}, {"65 steps", "at most 64"}},
      {"/decoder/decoders", Doubling(36), {"decoder", "piece", "more than 1028"}},
      {"/added_tokens/1/colour", 1, {"added_tokens[1]", "colour", "lstrip"}},
      {"/extra", 1, {"extra", "added_tokens"}},
  };
  for (const auto& [path, value, named] : kCases) {
    SCOPED_TRACE(std::string(path) + " = " + value.dump());
    const auto blob = CompileTokenizer(With(path, value));
    EXPECT_EQ(blob.status().code(), absl::StatusCode::kInvalidArgument) << blob.status();
    for (const char* name : named) EXPECT_THAT(std::string(blob.status().message()), HasSubstr(name));
  }
}

TEST(Compile, ADecoderMayMakePiecesSomewhatLonger) {
  const auto tokenizer = Compiled(With("/decoder/decoders", Doubling(3)));
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(DecodeText(*tokenizer, Ids({LlamaJson()["model"]["vocab"]["a"].get<int32_t>()})), "aaaaaaaa");
}

TEST(Compile, RefusalsOfUnigramNameThePartAndWhatIsSupported) {
  const struct {
    const char* path;
    json value;
    std::vector<const char*> named;
  } kCases[] = {
      {"/model/unk_id", nullptr, {"model.unk_id"}},
      {"/model/unk_id", 1 << 20, {"model.unk_id"}},
      {"/model/vocab", json::object(), {"model.vocab", "pieces and scores"}},
      {"/model/vocab/5", "x", {"model.vocab[5]"}},
      {"/model/vocab/5/1", "x", {"model.vocab[5]"}},
      {"/model/vocab/5/0", "<unk>", {"model.vocab[5]", "twice"}},
      {"/model/vocab/5/0", std::string(257, 'x'), {"model.vocab[5]", "257", "256"}},
      {"/model/merges", json::array(), {"merges"}},
      {"/normalizer/precompiled_charsmap", "%", {"precompiled_charsmap", "base64"}},
      {"/normalizer/precompiled_charsmap", "AAAA", {"compiled map of 3 bytes"}},
      {"/normalizer/precompiled_charsmap", "/////wAAAAA=", {"compiled map of 8 bytes"}},
      {"/normalizer", {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}}, {"normalizer.Strip.strip_left"}},
      {"/pre_tokenizer/pretokenizers/0/more", 1, {"WhitespaceSplit", "more"}},
  };
  for (const auto& [path, value, named] : kCases) {
    SCOPED_TRACE(std::string(path) + " = " + value.dump());
    json changed = UnigramJson();
    changed[json::json_pointer(path)] = value;
    const auto blob = CompileTokenizer(changed.dump());
    EXPECT_EQ(blob.status().code(), absl::StatusCode::kInvalidArgument) << blob.status();
    for (const char* name : named) EXPECT_THAT(std::string(blob.status().message()), HasSubstr(name));
  }
}

TEST(Compile, RefusesWhatIsNoTokenizerJson) {
  for (const std::string_view text :
       {"", "{", "[]", "null", "3", "{}", "{\"model\": 3}", "\"\xFF\"", "{\"model\": {\"type\": \"BPE\"}}"}) {
    EXPECT_EQ(CompileTokenizer(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(Compile, EveryTruncationOfTheFileIsRefused) {
  const std::string text = LlamaJson().dump();
  for (size_t bytes = 0; bytes < text.size(); bytes += 37) {
    EXPECT_FALSE(CompileTokenizer(std::string_view(text).substr(0, bytes)).ok()) << bytes;
  }
}

TEST(Compile, IsDeterministic) {
  const std::string text = LlamaJson().dump();
  EXPECT_EQ(*CompileTokenizer(text), *CompileTokenizer(text));
}

TEST(Compile, MergesMayBeSpelledBothWays) {
  json root = LlamaJson();
  json pairs = json::array(), strings = json::array();
  for (const json& merge : root["model"]["merges"]) {
    if (merge[0] == " ") continue;
    pairs.push_back(merge);
    strings.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  root["model"]["merges"] = pairs;
  const auto of_pairs = CompileTokenizer(root.dump());
  root["model"]["merges"] = strings;
  const auto of_strings = CompileTokenizer(root.dump());
  ASSERT_TRUE(of_pairs.ok() && of_strings.ok());
  EXPECT_EQ(*of_pairs, *of_strings);
}

}  // namespace
}  // namespace moed
