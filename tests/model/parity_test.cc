// The tiny checkpoints against what transformers computed from them in float32 (tools/parity/make_golden.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "nlohmann/json.hpp"
#include "tests/file_text.h"
#include "tests/model/packed_model.h"

namespace moed {
namespace {

// Of the standard deviation of the logits: what float32 sums in another order make, and what rounded keys and values make.
constexpr double kTolerance = 1e-5;
constexpr double kRoundedTolerance = 2e-3;

struct Golden {
  std::vector<TokenId> prompt;
  std::vector<TokenId> greedy;
  Logits logits;  // of the last positions of the prompt
  double deviation = 0;
  std::vector<std::vector<std::vector<int32_t>>> experts;  // [MoE layer][prompt token][slot]
  int max_context = 0;                                     // 0: all positions
  nlohmann::json config;                                   // what config.json says otherwise
};

std::vector<TokenId> Tokens(const nlohmann::json& numbers) {
  const auto values = numbers.get<std::vector<int32_t>>();
  return std::vector<TokenId>(values.begin(), values.end());
}

// One of a checkpoint's golden outputs: those of long contexts, and of other rotations, are in files of their own.
struct Compared {
  std::string checkpoint;
  std::string file = "golden.json.xz";
  std::string path() const { return DataFolder() + "/" + checkpoint + "/" + file; }
};

std::vector<Compared> AllCompared() {
  std::vector<Compared> all;
  for (const std::string& name : CheckpointNames()) {
    all.push_back({name});
    for (const char* const other : {"golden_long.json.xz", "golden_yarn.json.xz", "golden_llama3.json.xz"}) {
      if (const Compared with_other = {name, other}; std::filesystem::exists(with_other.path())) all.push_back(with_other);
    }
  }
  return all;
}

Golden ReadGolden(const Compared& compared) {
  const auto json = nlohmann::json::parse(ReadFileText(compared.path()));
  Golden golden{Tokens(json.at("prompt")), Tokens(json.at("greedy"))};
  json.at("logits").get_to(golden.logits);
  json.at("logits_std").get_to(golden.deviation);
  json.at("experts").get_to(golden.experts);
  golden.max_context = json.value("max_context", 0);
  golden.config = json.value("config", nlohmann::json());
  return golden;
}

// The checkpoint, packed; one whose config.json differs is a copy, which is gone once it is packed.
const StoreReader& PackedAs(const std::string& checkpoint, const Golden& golden) {
  if (golden.config.is_null()) return PackedStore(checkpoint, FormatId::kBF16);
  static std::map<std::string, const StoreReader*> stores;
  const StoreReader*& store = stores[checkpoint];
  if (store != nullptr) return *store;
  const TemporaryFolder folder;
  const std::string copy = folder / checkpoint;
  std::filesystem::copy(DataFolder() + "/" + checkpoint, copy);
  auto config = nlohmann::json::parse(ReadFileText(copy + "/config.json"));
  config.merge_patch(golden.config);
  std::ofstream(copy + "/config.json") << config;
  store = &PackedStore(copy, FormatId::kBF16);
  return *store;
}

double LargestDifference(const Logits& got, const Logits& expected) {
  EXPECT_GE(got.size(), expected.size());
  double largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const std::vector<float>& row = got[got.size() - expected.size() + i];
    EXPECT_EQ(row.size(), expected[i].size());
    for (size_t j = 0; j < row.size(); ++j) largest = std::max(largest, std::abs(double{row[j]} - double{expected[i][j]}));
  }
  return largest;
}

class ParityTest : public testing::TestWithParam<Compared> {
 protected:
  const Golden golden_ = ReadGolden(GetParam());
  const StoreReader& store_ = PackedAs(GetParam().checkpoint, golden_);
  PackedModel model_{store_, {.max_context = golden_.max_context}};
  MemoryProvider provider_{store_};
};

TEST_P(ParityTest, LogitsAreThoseOfTransformers) {
  TestSequence sequence;
  const Logits logits = model_.Feed(provider_, sequence, golden_.prompt, golden_.prompt.size());
  const double difference = LargestDifference(logits, golden_.logits) / golden_.deviation;
  RecordProperty("difference_in_deviations", std::to_string(difference));
  EXPECT_LE(difference, kTolerance);
}

// Rounding keys and values once is far below what tells two tokens apart.
TEST_P(ParityTest, RoundedKeysAndValuesChangeLogitsLittle) {
  for (const auto& [format, tolerance] :
       {std::pair(KvFormat::kF16, kRoundedTolerance), std::pair(KvFormat::kQ8, 20 * kRoundedTolerance)}) {
    PackedModel rounded(store_, {.max_context = golden_.max_context, .kv_format = format});
    TestSequence sequence;
    const Logits logits = rounded.Feed(provider_, sequence, golden_.prompt, golden_.prompt.size());
    const double difference = LargestDifference(logits, golden_.logits) / golden_.deviation;
    RecordProperty("difference_in_deviations_" + std::to_string(static_cast<int>(format)), std::to_string(difference));
    EXPECT_LE(difference, tolerance);
    EXPECT_GT(difference, 0);
  }
}

TEST_P(ParityTest, GreedyTokensAreThoseOfTransformers) {
  TestSequence sequence;
  std::vector<float> last = model_.Feed(provider_, sequence, golden_.prompt, golden_.prompt.size()).back();
  std::vector<TokenId> greedy;
  for (size_t i = 0; i < golden_.greedy.size(); ++i) {
    greedy.push_back(TokenId(static_cast<int32_t>(std::max_element(last.begin(), last.end()) - last.begin())));
    last = model_.Feed(provider_, sequence, std::span(&greedy.back(), 1), 1).back();
  }
  EXPECT_EQ(greedy, golden_.greedy);
}

TEST_P(ParityTest, ExpertsAreThoseOfTransformersInTheirOrder) {
  std::vector<std::vector<std::vector<int32_t>>> experts;
  provider_.RecordExperts(experts);
  TestSequence sequence;
  model_.Feed(provider_, sequence, golden_.prompt, golden_.prompt.size());
  EXPECT_EQ(experts, golden_.experts);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, ParityTest, testing::ValuesIn(AllCompared()), [](const auto& info) {
  const std::string& file = info.param.file;
  return info.param.checkpoint + file.substr(sizeof("golden") - 1, file.find('.') - (sizeof("golden") - 1));
});

}  // namespace
}  // namespace moed
