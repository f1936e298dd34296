#include "core/expert/learning/learned_state.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/expert/learning/token_table.h"
#include "core/store/checksum.h"
#include "tests/expert/learned_parts.h"

namespace moed {
namespace learned_state_test {

constexpr uint64_t kHash = 0x1234;
constexpr std::string_view kParts = "policy learned, predictor learned";

class LearnedStateTest : public testing::Test {
 protected:
  LearnedFile File(std::string_view name = "state") const { return {folder_ / name, kHash, std::string(kParts)}; }
  absl::Status Save(LearnedParts& parts, const LearnedFile& file) { return parts.Save(file); }
  absl::StatusOr<LearnedTaken> Take(LearnedParts& parts, const LearnedFile& file) { return parts.Take(file); }
  // All that was learned, as the file has it.
  std::string Contents(LearnedParts& parts) {
    EXPECT_TRUE(Save(parts, File("contents")).ok());
    return Read("contents");
  }
  std::string Read(std::string_view name) const {
    std::ifstream file(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Write(std::string_view name, std::string_view bytes) const {
    std::ofstream(folder_ / name, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }

 private:
  struct Folder {
    Folder() {
      path = std::filesystem::path(testing::TempDir()) / ("learned_state_" + std::to_string(getpid()));
      std::filesystem::create_directories(path);
    }
    ~Folder() { std::filesystem::remove_all(path); }
    std::filesystem::path operator/(std::string_view name) const { return path / name; }
    std::filesystem::path path;
  };
  Folder folder_;
};

TEST_F(LearnedStateTest, WhatWasSavedIsTakenUpWhole) {
  LearnedParts learned;
  learned.Learn(60);
  ASSERT_TRUE(Save(learned, File()).ok());
  LearnedParts fresh;
  ASSERT_NE(Contents(fresh), Contents(learned));
  const auto taken = Take(fresh, File());
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_GT(taken->taken_bytes, 0u);
  EXPECT_EQ(taken->left_bytes, 0u);
  EXPECT_EQ(Contents(fresh), Contents(learned));
  // And both learn on alike.
  fresh.Learn(20);
  learned.Learn(20);
  EXPECT_EQ(Contents(fresh), Contents(learned));
}

// Weights of pairs have no room in the small budget. Its tables have fewer rows, where the few tokens fit all the same: on the
// way back nothing of them is missing.
TEST_F(LearnedStateTest, TablesMayGrowAndShrinkWithTheBudget) {
  LearnedParts learned(1 << 16);
  learned.Learn(60);
  ASSERT_TRUE(Save(learned, File()).ok());
  LearnedParts smaller(0);
  const auto taken = Take(smaller, File());
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_GT(taken->taken_bytes, 0u);
  EXPECT_GT(taken->left_bytes, 0u);
  ASSERT_TRUE(Save(smaller, File("smaller")).ok());
  LearnedParts larger(1 << 20), again(0);
  ASSERT_TRUE(Take(larger, File("smaller")).ok());
  ASSERT_TRUE(Save(larger, File("larger")).ok());
  ASSERT_TRUE(Take(again, File("larger")).ok());
  EXPECT_EQ(Contents(again).size(), Contents(smaller).size());
  again.Learn(20);
}

TEST_F(LearnedStateTest, WhatIsNotShownWholeLeavesTheFileAsItWas) {
  LearnedParts learned;
  learned.Learn(60);
  ASSERT_TRUE(Save(learned, File()).ok());
  const std::string before = Read("state");
  learned.Learn(20);
  const absl::Status saved = TrySaveLearned(File(), [&](LearnedState& state) {
    learned.Visit(state);
    return absl::UnavailableError("the engine has stopped");
  });
  EXPECT_EQ(saved.code(), absl::StatusCode::kUnavailable) << saved;
  EXPECT_EQ(Read("state"), before);
  EXPECT_FALSE(std::filesystem::exists(File().path + ".partial"));
}

// Of a table with room for few, the tokens seen last.
TEST_F(LearnedStateTest, TheNewestTokensAreTakenWhereNotAllFit) {
  const ExpertModelShape shape = StoreContext();
  const std::vector<float> zeros(kExperts);
  TokenTable large(shape, 1 << 16, 1);
  const auto chosen_by = [](int token) { return static_cast<size_t>(token % kExperts); };
  for (int token = 0; token < 100; ++token) {
    std::vector<float> targets = zeros;
    targets[chosen_by(token)] = 1;
    const ExpertChoice choices[] = {{token % kExperts, 1}};
    large.Learn(large.FindOrAdd(TokenId(token)), 2, choices, targets, {zeros, zeros});
  }
  ASSERT_TRUE(SaveLearned(File(), [&](LearnedState& state) { large.VisitLearned(state); }).ok());
  TokenTable small(shape, 0, 1);
  const auto taken = TakeLearned(File(), [&](LearnedState& state) { small.VisitLearned(state); });
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_GT(taken->left_bytes, 0u);
  for (int token = 0; token < 100; ++token) {
    const int row = small.Find(TokenId(token));
    ASSERT_EQ(row != TokenTable::kNoRow, token >= 100 - static_cast<int>(small.rows())) << token;
    if (row == TokenTable::kNoRow) continue;
    std::vector<float> values(kExperts);
    small.Values(row, 2, {zeros, zeros}, values);
    for (size_t e = 0; e < kExperts; ++e) EXPECT_NEAR(values[e], e == chosen_by(token) ? .5f : 0, .01f) << token;
  }
}

TEST_F(LearnedStateTest, AFileOfAnEarlierVersionStartsAnew) {
  LearnedParts learned;
  learned.Learn(60);
  ASSERT_TRUE(Save(learned, File()).ok());
  for (const char version : {'1', '2', '3'}) {
    std::string old = Read("state");
    old[7] = version;
    const uint64_t sum = Checksum(std::string_view(old).substr(0, old.size() - sizeof(uint64_t)));
    old.replace(old.size() - sizeof(sum), sizeof(sum), reinterpret_cast<const char*>(&sum), sizeof(sum));
    Write("old", old);
    LearnedParts fresh;
    const std::string before = Contents(fresh);
    const absl::Status status = Take(fresh, File("old")).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("earlier version"));
    EXPECT_EQ(Contents(fresh), before);
    LearnedFile other_store = File("old");
    other_store.model_hash = kHash + 1;
    EXPECT_EQ(Take(fresh, other_store).status().code(), absl::StatusCode::kFailedPrecondition) << "nothing writes over it";
  }
}

// What a model computes for a damaged prompt may be no number; what is learned from the others stays one.
TEST_F(LearnedStateTest, WhatIsNoNumberIsNotLearned) {
  const auto gate = [](LayerId, std::span<const float> hidden, std::span<float> probabilities) {
    std::ranges::fill(probabilities, hidden[0] / kExperts);
  };
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    LearnedParts parts;
    parts.predictor =
        MakePredictor("learned", {.model = {kLayers, kExperts, kTopK, 2, {}, 0, 1 << 16}, .hidden = 1, .gate = gate}).value();
    parts.gate_inputs = true;
    const std::string before = Contents(parts);
    parts.Learn(60, [bad](int token, LayerId layer) {
      const bool of_router = token % 4 == 1 && layer != kFirst;
      return Observed{.hidden = token % 4 == 3 ? bad : 1, .probability = of_router ? bad : 0.7f};
    });
    EXPECT_NE(Contents(parts), before);
    ASSERT_TRUE(Save(parts, File()).ok());
    LearnedParts fresh;
    EXPECT_TRUE(Take(fresh, File()).ok()) << bad << ": " << Take(fresh, File()).status();
  }
}

TEST_F(LearnedStateTest, WhatDoesNotFitIsRefusedAndNothingIsTaken) {
  LearnedParts learned;
  learned.Learn(60);
  ASSERT_TRUE(Save(learned, File()).ok());
  const std::string good = Read("state");
  LearnedParts fresh;
  const std::string before = Contents(fresh);

  EXPECT_EQ(Take(fresh, File("absent")).status().code(), absl::StatusCode::kNotFound);
  LearnedFile other_store = File();
  other_store.model_hash = kHash + 1;
  EXPECT_EQ(Take(fresh, other_store).status().code(), absl::StatusCode::kFailedPrecondition);
  LearnedFile other_parts = File();
  other_parts.parts = "policy learned, predictor none";
  const absl::Status refused = Take(fresh, other_parts).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr(kParts));

  for (const size_t at : {size_t{0}, size_t{9}, size_t{17}, size_t{30}, good.size() / 2, good.size() - 1}) {
    std::string damaged = good;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    Write("damaged", damaged);
    EXPECT_EQ(Take(fresh, File("damaged")).status().code(), absl::StatusCode::kDataLoss) << at;
  }
  for (const size_t bytes : {size_t{0}, size_t{7}, size_t{40}, good.size() / 2, good.size() - 1}) {
    Write("damaged", std::string_view(good).substr(0, bytes));
    EXPECT_EQ(Take(fresh, File("damaged")).status().code(), absl::StatusCode::kDataLoss) << bytes;
  }
  EXPECT_EQ(Contents(fresh), before);
}

}  // namespace learned_state_test
}  // namespace moed
