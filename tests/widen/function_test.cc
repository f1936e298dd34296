// A widened checkpoint computes what the narrow one computes: same routing, same greedy tokens, same logits but for rounding.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "core/base/status.h"
#include "tests/model/packed_model.h"
#include "tests/paths.h"

namespace moed {
namespace {

// Of the standard deviation of the logits. Weights are the same numbers, so only float32 sums in another order differ.
constexpr double kTolerance = 5e-5;
constexpr int kPromptTokens = 24;
constexpr int kGreedyTokens = 12;

std::string FolderOf(const std::string& checkpoint) {
  return checkpoint == "tales-qwen" ? SourcePath("models/tales-qwen") : DataFolder() + "/" + checkpoint;
}

// Those that moed-widen knows: FAMILIES of tools/widen/model.py.
std::vector<std::string> Names() {
  constexpr std::string_view kFamilies[] = {"mixtral", "olmoe", "qwen2_moe", "qwen3_moe"};
  std::vector<std::string> names = CheckpointNames();
  std::erase_if(names, [&](const std::string& name) {
    return std::ranges::none_of(kFamilies, [&](std::string_view family) { return name.starts_with(family); });
  });
  names.push_back("tales-qwen");
  return names;
}

void RunCommand(const std::string& command) { ASSERT_EQ(std::system(command.c_str()), 0) << command; }

// On the disk: the widened demo model is larger than what a small /dev/shm holds.
class Folder {
 public:
  Folder() {
    std::string pattern = testing::TempDir() + "moed-widen-XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string operator/(std::string_view name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

struct Answer {
  std::vector<TokenId> greedy;
  Logits logits;                              // of all tokens of the prompt and of the answer
  std::vector<std::vector<int32_t>> experts;  // of every step and layer
};

// `forced`: tokens to go on with; empty = the likeliest ones.
Answer Compute(const std::string& checkpoint, const std::string& store_path, const std::vector<TokenId>& forced) {
  RunCommand(StrCat(BuiltProgram("moed-pack"), " ", checkpoint, " ", store_path,
                    " --expert-formats bf16 --trunk-format bf16 2>/dev/null >&2"));
  const auto store = StoreReader::Open(store_path);
  EXPECT_TRUE(store.ok()) << store.status();
  PackedModel model(**store, {.backend = "auto", .logits_rows = kPromptTokens});
  MemoryProvider provider(**store);
  Answer answer;
  provider.on_begin = [&](const LayerRouting& routing) {
    auto& layer = answer.experts.emplace_back();
    for (const TokenRouting& token : routing.tokens) {
      for (const ExpertChoice& choice : token.choices) layer.push_back(choice.expert);
    }
  };
  std::mt19937 random(7);
  std::vector<TokenId> next;
  for (int i = 0; i < kPromptTokens; ++i) next.push_back(TokenId(static_cast<int32_t>(random() % model.spec().vocabulary)));
  TestSequence sequence;
  for (int i = 0; i <= kGreedyTokens; ++i) {
    const Logits rows = model.Feed(provider, sequence, next, next.size());
    answer.logits.insert(answer.logits.end(), rows.begin(), rows.end());
    const std::vector<float>& last = rows.back();
    answer.greedy.push_back(TokenId(static_cast<int32_t>(std::max_element(last.begin(), last.end()) - last.begin())));
    next = {forced.empty() ? answer.greedy.back() : forced[i]};
  }
  return answer;
}

double Deviation(const Logits& logits) {
  double sum = 0, squares = 0, count = 0;
  for (const auto& row : logits) {
    for (const double value : row) sum += value, squares += value * value, ++count;
  }
  return std::sqrt(squares / count - sum * sum / count / count);
}

double LargestDifference(const Logits& a, const Logits& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    for (size_t j = 0; j < a[i].size(); ++j) largest = std::max(largest, std::abs(double{a[i][j]} - double{b[i][j]}));
  }
  return largest;
}

class WidenTest : public testing::TestWithParam<std::string> {};

TEST_P(WidenTest, KeepsTheFunction) {
  Folder folder;
  const std::string narrow = FolderOf(GetParam());
  const Answer expected = Compute(narrow, folder / "narrow.moed", {});
  for (const int factor : {2, 4}) {
    SCOPED_TRACE(factor);
    const std::string wide = folder / StrCat("wide", factor);
    RunCommand(StrCat(MOED_PYTHON, " ", SourcePath("tools/widen"), " ", narrow, " ", wide, " --factor ", factor, " 2>/dev/null"));
    const Answer got = Compute(wide, wide + ".moed", expected.greedy);
    EXPECT_EQ(got.experts, expected.experts);
    EXPECT_EQ(got.greedy, expected.greedy);
    ASSERT_EQ(got.logits.size(), expected.logits.size());
    ASSERT_EQ(got.logits[0].size(), expected.logits[0].size());
    const double difference = LargestDifference(got.logits, expected.logits) / Deviation(expected.logits);
    RecordProperty(StrCat("difference_in_deviations_x", factor), StrCat(difference));
    EXPECT_LE(difference, kTolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, WidenTest, testing::ValuesIn(Names()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace moed
