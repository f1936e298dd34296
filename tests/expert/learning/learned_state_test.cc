#include "core/expert/learning/learned_state.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/expert/learned_parts.h"

namespace moed {
namespace {

constexpr uint64_t kHash = 0x1234;
constexpr std::string_view kParts = "policy learned, predictor learned";

class LearnedStateTest : public testing::Test {
 protected:
  LearnedFile File(std::string_view name = "state") const { return {folder_ / name, kHash, std::string(kParts)}; }
  absl::Status Save(LearnedParts& parts, const LearnedFile& file) { return SaveLearned(file, *parts.policy, *parts.predictor); }
  absl::StatusOr<LearnedTaken> Take(LearnedParts& parts, const LearnedFile& file) {
    return TakeLearned(file, *parts.policy, *parts.predictor);
  }
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

TEST_F(LearnedStateTest, ArraysOfAnotherSizeStartAnew) {
  LearnedParts learned(1 << 16);
  learned.Learn(60);
  ASSERT_TRUE(Save(learned, File()).ok());
  LearnedParts smaller(1 << 12);
  const auto taken = Take(smaller, File());
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_GT(taken->taken_bytes, 0u);
  EXPECT_GT(taken->left_bytes, 0u);
  smaller.Learn(20);
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

}  // namespace
}  // namespace moed
