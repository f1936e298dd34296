// What planners left unfinished, damaged: refused with its name, or what is read of it is sane.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/base/status.h"
#include "tests/base/damaged_bytes.h"
#include "tests/base/damaged_json.h"
#include "tests/pack/tiny_checkpoint.h"
#include "tools/plan/dictionary_unfinished.h"
#include "tools/plan/measured_losses.h"

namespace moed {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kIdentity = 7;
constexpr int kLayers = 2, kExperts = 4;

class DamagedDictionary : public ::testing::Test {
 protected:
  DamagedDictionary() {
    DictionaryState state{.windows = 2, .tokens = 62, .report = {}, .paths = nullptr};
    state.paths = std::make_unique<ActivationPaths>(kLayers, kExperts, 2, 0);
    const int32_t chosen[] = {1, 2};
    state.paths->Add(1, {{}, {0, 3}}, chosen);
    state.report.sources[2] = {5, 10, 3};
    EXPECT_TRUE(unfinished_.Write(state).ok());
    description_ = FileContents(file_);
    table_ = FileContents(file_ + "-2");
  }
  absl::Status Read(const std::string& description, const std::string& table) {
    WriteContents(file_, description);
    WriteContents(file_ + "-2", table);
    const auto state = unfinished_.Read(kLayers, kExperts);
    if (!state.ok()) return state.status();
    EXPECT_EQ(state->windows, 2) << "the only table there is";
    EXPECT_NE(state->paths, nullptr);
    EXPECT_LE(state->tokens, static_cast<uint64_t>(INT64_MAX));
    return absl::OkStatus();
  }
  void ExpectRefusedOrSane(const std::string& description, const std::string& what) {
    const absl::Status status = Read(description, table_);
    if (!status.ok()) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(file_)) << what;
    }
    unfinished_.Remove();
    EXPECT_FALSE(std::filesystem::exists(file_)) << what;
  }

  TemporaryFolder folder_;
  const std::string file_ = folder_ / "s.paths.unfinished";
  UnfinishedDictionary unfinished_{folder_ / "s.paths", kIdentity};
  std::string description_, table_;
};

TEST_F(DamagedDictionary, UndamagedItIsRead) { EXPECT_TRUE(Read(description_, table_).ok()) << Read(description_, table_); }

TEST_F(DamagedDictionary, InItsTable) {
  const auto refused = [&](const std::string& damaged, size_t at) {
    const absl::Status status = Read(description_, damaged);
    EXPECT_FALSE(status.ok()) << at;
    EXPECT_THAT(std::string(status.message()), HasSubstr(file_ + "-2")) << at;
  };
  ForEachTruncation(table_, {.step = 7}, refused);
  ForEachFlip(table_, {.step = 5}, 1, refused);
}

TEST_F(DamagedDictionary, InItsDescription) {
  const auto read = [&](const std::string& damaged, size_t at) { ExpectRefusedOrSane(damaged, std::to_string(at)); };
  ForEachTruncation(description_, {.step = 2}, read);
  ForEachFlip(description_, {}, 1, read);
  ForEachHostileValue(description_,
                      [&](const std::string& damaged, const std::string& what) { ExpectRefusedOrSane(damaged, what); });
}

TEST_F(DamagedDictionary, ThatCannotBeReadIsNotMadeAgain) {
  std::filesystem::remove(file_);
  std::filesystem::create_symlink(file_, file_);
  const auto state = unfinished_.Read(kLayers, kExperts);
  EXPECT_THAT(std::string(state.status().message()), HasSubstr(file_)) << state.status();
}

TEST_F(DamagedDictionary, NumbersAreNotCutToFit) {
  for (const char* windows : {"4294967298", "2.5", "-2", "1e300"}) {
    std::string damaged = description_;
    damaged.replace(damaged.find("\"windows\":2"), 11, StrCat("\"windows\":", windows));
    const absl::Status status = Read(damaged, table_);
    EXPECT_TRUE(absl::IsDataLoss(status)) << windows << ": " << status;
  }
}

// Of a damaged journal what was measured first is known, and nothing else.
TEST(DamagedLosses, AreMeasuredAgain) {
  TemporaryFolder folder;
  const std::string path = folder / "losses";
  {
    auto losses = MeasuredLosses::Open(path, kIdentity);
    ASSERT_TRUE(losses.ok()) << losses.status();
    for (const uint64_t configuration : {1, 2, 3}) ASSERT_TRUE(losses->Add(configuration, 0.25 * configuration).ok());
  }
  const std::string good = FileContents(path);
  const auto read = [&](const std::string& damaged, size_t at) {
    WriteContents(path, damaged);
    const auto losses = MeasuredLosses::Open(path, kIdentity);
    ASSERT_TRUE(losses.ok()) << losses.status();
    EXPECT_LT(losses->size(), 3u) << at;
    EXPECT_FALSE(losses->started_over()) << at;
    for (uint64_t configuration = 1; configuration <= losses->size(); ++configuration) {
      EXPECT_EQ(losses->Find(configuration), 0.25 * configuration) << at;
    }
  };
  ForEachTruncation(good, {.step = 5}, read);
  ForEachFlip(good, {.step = 3}, 1, read);
}

TEST(DamagedLosses, ThatCannotBeReadAreNotMeasuredAgain) {
  TemporaryFolder folder;
  const std::string path = folder / "losses";
  std::filesystem::create_symlink(path, path);
  const absl::Status status = MeasuredLosses::Open(path, kIdentity).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr(path)) << status;
  EXPECT_TRUE(std::filesystem::is_symlink(path)) << "it is left as it was";
}

}  // namespace
}  // namespace moed
