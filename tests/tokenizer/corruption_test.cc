// Whatever the bytes of a blob are: an error, or a tokenizer that works without harm (sanitizers watch).
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstring>
#include <functional>
#include <random>

#include "core/tokenizer/blob.h"
#include "core/tokenizer/tokenizer_spec.h"
#include "core/tokenizer/vocabulary.h"
#include "tests/base/damaged_bytes.h"
#include "tests/tokenizer/tokenizers.h"

namespace moed {
namespace {

std::string SmallBlob() {
  const auto blob = CompileTokenizer(LlamaJson().dump());
  EXPECT_TRUE(blob.ok()) << blob.status();
  return *blob;
}

std::string JapaneseBlob() {
  const auto json = nlohmann::json::parse(ReadFileText(TestData("japanese.vectors.json.xz")));
  return CompileJapaneseTokenizer(json["vocabulary"].get<std::string>(), json["emoji"].get<std::string>()).value();
}

// Makes the checksum right again, so that what lies behind it is reached.
void Reseal(std::string& blob) {
  if (blob.size() < 32) return;
  const uint64_t bytes = blob.size();
  std::memcpy(blob.data() + 24, &bytes, sizeof(bytes));
  const uint64_t checksum = XXH3_64bits(blob.data() + 24, blob.size() - 24);
  std::memcpy(blob.data() + 16, &checksum, sizeof(checksum));
}

void UseOrRefuse(std::string blob) {
  const auto tokenizer = Tokenizer::FromBlob(std::move(blob));
  if (!tokenizer.ok()) {
    EXPECT_EQ(tokenizer.status().code(), absl::StatusCode::kDataLoss) << tokenizer.status();
    return;
  }
  for (const bool parse : {true, false}) {
    const auto ids = (*tokenizer)->Encode("ab abc <s>\xE4\xBD\xA0 xxxx'd 12", {.parse_special_tokens = parse});
    if (!ids.ok()) continue;
    for (const TokenId id : *ids) EXPECT_LT(id.value(), (*tokenizer)->vocabulary_size());
    EXPECT_TRUE((*tokenizer)->Decode(*ids, false).ok());
  }
}

TEST(Corruption, EveryFlippedByteIsSeen) {
  const std::string blob = SmallBlob();
  ForEachFlip(blob, {}, 1, [](std::string damaged, size_t at) {
    EXPECT_EQ(Tokenizer::FromBlob(std::move(damaged)).status().code(), absl::StatusCode::kDataLoss) << "byte " << at;
  });
}

TEST(Corruption, EveryTruncationIsSeen) {
  const std::string blob = SmallBlob();
  const auto refused = [](std::string damaged, size_t bytes) {
    EXPECT_EQ(Tokenizer::FromBlob(damaged).status().code(), absl::StatusCode::kDataLoss) << bytes;
    Reseal(damaged);
    UseOrRefuse(std::move(damaged));
  };
  ForEachTruncation(blob, {.end = 128}, refused);
  ForEachTruncation(blob, {.begin = 128, .step = 61}, refused);
}

TEST(Corruption, DamageBehindARightChecksumDoesNoHarm) {
  const std::string blobs[] = {SmallBlob(), *CompileTokenizer(UnigramJson().dump()), JapaneseBlob()};
  std::mt19937 random(17);
  for (int round = 0; round < 4000; ++round) {
    const std::string& blob = blobs[round % std::size(blobs)];
    std::string damaged = blob;
    // The header and the description of the steps lie first: half of the damage goes there.
    const size_t reach = random() % 2 ? std::min<size_t>(blob.size(), 2048) : blob.size();
    for (uint32_t hits = 1 + random() % 4; hits > 0; --hits) {
      const size_t at = random() % reach;
      damaged[at] = static_cast<char>(random() % 3 ? random() : random() % 2 ? 0xFF : 0);
    }
    Reseal(damaged);
    UseOrRefuse(std::move(damaged));
  }
}

TEST(Corruption, StepsThatNoCompilerMakesAreDataLoss) {
  const std::string blob = SmallBlob();
  const auto sections = OpenBlob(blob).value();
  const size_t pieces = Vocabulary::Open(sections)->size();
  const auto opened = [&](const std::function<void(TokenizerSpec&)>& change) {
    const auto at = static_cast<size_t>(BlobSection::kSpec);
    TokenizerSpec spec = ParseSpec(sections[at], pieces).value();
    change(spec);
    PerBlobSection<std::string> changed;
    for (size_t i = 0; i < changed.size(); ++i) changed[i] = sections[i];
    changed[at] = SerializeSpec(spec);
    return Tokenizer::FromBlob(SealBlob(changed).value()).status();
  };
  EXPECT_TRUE(opened([](TokenizerSpec&) {}).ok());
  const std::pair<const char*, std::function<void(TokenizerSpec&)>> changes[] = {
      {"a long added token", [](auto& spec) { spec.added[0].content.assign(kLongestAddedToken + 1, 'x'); }},
      {"many steps", [](auto& spec) { spec.normalizer.resize(kMostTokenizerSteps + 1); }},
      {"many splits", [](auto& spec) { spec.pre_tokenizer.resize(kMostTokenizerSteps + 1); }},
      {"no UTF-8",
       [](auto& spec) {
         spec.normalizer.push_back({NormalizerStep::Kind::kPrepend, true, "", "\xFF"});
       }},
      {"a space of two", [](auto& spec) { spec.pre_tokenizer.push_back({.space = "  "}); }},
      {"a long prefix", [](auto& spec) { spec.pre_tokenizer.push_back({.prefix = "abcde"}); }},
      {"a decoder that doubles",
       [](auto& spec) {
         spec.decoder.replacements.assign(36, {"a", "aa"});
       }},
  };
  for (const auto& [what, change] : changes) EXPECT_EQ(opened(change).code(), absl::StatusCode::kDataLoss) << what;
}

TEST(Corruption, RandomBytesAreNoTokenizer) {
  std::mt19937 random(23);
  for (int round = 0; round < 500; ++round) {
    std::string bytes;
    for (size_t length = random() % 300; bytes.size() < length;) bytes += static_cast<char>(random());
    EXPECT_EQ(Tokenizer::FromBlob(std::move(bytes)).status().code(), absl::StatusCode::kDataLoss);
  }
}

TEST(Corruption, AnotherVersionIsNamed) {
  std::string blob = SmallBlob();
  blob[8] = 9;
  const auto tokenizer = Tokenizer::FromBlob(std::move(blob));
  EXPECT_NE(std::string(tokenizer.status().message()).find("version 9"), std::string::npos) << tokenizer.status();
}

TEST(Corruption, ABlobHoldsLittleBesideItself) {
  const std::string blob = SmallBlob();
  const auto tokenizer = Tokenizer::FromBlob(blob);
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_GE((*tokenizer)->memory_bytes(), blob.size());
  EXPECT_LT((*tokenizer)->memory_bytes(), blob.size() + 64 * 1024);
}

}  // namespace
}  // namespace moed
