#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/base/status.h"
#include "core/store/store.h"
#include "tests/plan/plan_rig.h"
#include "tools/plan/dictionary_planner.h"
#include "tools/plan/dictionary_unfinished.h"

namespace moed {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Steps {
 public:
  Steps(PathCounter& counter) : counter_(counter) {}
  // One token through layers 0, 1 and 2.
  void Token(std::vector<std::vector<int32_t>> experts) {
    counter_.Begin(1);
    for (int layer = 0; layer < 3; ++layer) {
      std::vector<ExpertChoice> choices;
      for (const int32_t expert : experts[static_cast<size_t>(layer)]) choices.push_back({expert, .5f});
      const TokenRouting tokens[] = {{SequenceId(1), TokenId(4), Phase::kPrefill, choices}};
      counter_.Count({LayerId(layer), tokens});
    }
  }

 private:
  PathCounter& counter_;
};

TEST(PathCounter, ReportsWhatAnsweredAndHowWell) {
  const LayerId layers[] = {LayerId(0), LayerId(1), LayerId(2)};
  const ExpertIndex experts(layers, 8, 1);
  ActivationPaths paths(3, 8, 2, 1 << 16);
  DictionaryReport report;
  PathCounter counter(experts, 2, 0, paths, report);
  Steps steps(counter);
  steps.Token({{0, 1}, {2, 3}, {4, 5}});
  steps.Token({{0, 1}, {2, 3}, {4, 5}});
  EXPECT_EQ(report.sources[0].estimates, 0u);
  // Layer 1 has single experts for a key (one of two right), layer 2 the pair (0, 2).
  steps.Token({{0, 1}, {2, 6}, {4, 7}});
  // The whole key in layer 2: 4 and 5, both right.
  steps.Token({{0, 1}, {2, 3}, {4, 5}});
  EXPECT_EQ(counter.tokens(), 4u);
  const auto expect = [&](PathSource source, uint64_t estimates, uint64_t chosen, uint64_t right) {
    const DictionaryReport::Source& seen = report.sources[EnumIndex(source)];
    EXPECT_EQ(seen.estimates, estimates);
    EXPECT_EQ(seen.chosen, chosen);
    EXPECT_EQ(seen.right, right);
  };
  expect(PathSource::kPath, 1, 2, 2);
  expect(PathSource::kPairs, 1, 2, 1);
  expect(PathSource::kExperts, 2, 4, 3);
  expect(PathSource::kFrequency, 0, 0, 0);
  EXPECT_THAT(report.Text(),
              AllOf(HasSubstr("whole keys         25.0 %        100.0 %"), HasSubstr("pairs              25.0 %         50.0 %"),
                    HasSubstr("all               100.0 %         75.0 %")));
}

class DictionaryCommand : public PlanRig {
 protected:
  DictionaryCommand() : PlanRig(".paths") {}
};

TEST_F(DictionaryCommand, WritesWhatFitsItsStoreAlone) {
  Prepare(MakeTinyCheckpoint("olmoe"), "q8");
  const Arguments arguments = Plan("dictionary", {"--table", "64KiB"});
  const CommandResult made = RunProgram("moed-plan", arguments);
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, AllOf(HasSubstr("whole keys"), HasSubstr("frequency"), HasSubstr("100.0 %")));
  const auto reader = StoreReader::Open(store_);
  ASSERT_TRUE(reader.ok());
  const auto layers = static_cast<int>((*reader)->description().moe_layers.size());
  const auto paths = ActivationPaths::Read(out_, (*reader)->model_hash(), layers, (*reader)->description().experts_per_layer);
  ASSERT_TRUE(paths.ok()) << paths.status();
  EXPECT_LE((*paths)->memory_bytes(), (64u << 10) + 4096);
  EXPECT_FALSE(ActivationPaths::Read(out_, (*reader)->model_hash() ^ 1, layers, (*reader)->description().experts_per_layer).ok());

  EXPECT_FALSE(std::filesystem::exists(out_ + ".unfinished"));
  const CommandResult again = RunProgram("moed-plan", arguments);
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.err, HasSubstr("--force"));
  EXPECT_NE(RunProgram("moed-plan", {"dictionary", store_, text_, "--tokens", "300", "--out", folder_ / "no" + "/such/folder"})
                .exit_code,
            0);
}

TEST_F(DictionaryCommand, InterruptedAndResumedItIsTheSameDictionary) {
  Prepare(MakeTinyCheckpoint("olmoe"), "q8", 4000);
  const auto arguments = [&](const std::string& out) { return Plan("dictionary", {"--out", out, "--table", "64KiB"}, 20000); };
  const CommandResult whole = RunProgram("moed-plan", arguments(PlanRig::whole()));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_THAT(whole.err, HasSubstr("counting tokens:"));
  // Earlier and later in its work; what ends before it can be interrupted has left nothing to resume.
  const bool kept = InterruptOften(arguments(out_));
  if (!std::filesystem::exists(out_)) {
    const CommandResult last = RunProgram("moed-plan", arguments(out_));
    ASSERT_EQ(last.exit_code, 0) << last.err;
    EXPECT_EQ(last.err.find("resuming") != std::string::npos, kept) << last.err;
    EXPECT_EQ(last.out.substr(last.out.find(": ")), whole.out.substr(whole.out.find(": ")));
  }
  EXPECT_EQ(FileContents(out_), FileContents(PlanRig::whole()));
  int left = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "")) {
    left += entry.path().string().find("unfinished") != std::string::npos;
  }
  EXPECT_EQ(left, 0);
}

// Deterministic: taken up after any number of windows, and refused when it is of something else or damaged.
TEST(UnfinishedDictionary, IsTakenUpWhole) {
  TemporaryFolder folder;
  const std::string file = folder / "s.paths";
  UnfinishedDictionary unfinished(file, 7);
  EXPECT_EQ(unfinished.Read(3, 8)->paths, nullptr);
  DictionaryState state;
  state.paths = std::make_unique<ActivationPaths>(3, 8, 2, 1 << 16);
  const int32_t chosen[] = {1, 2};
  for (const int windows : {1, 2}) {
    state.paths->Add(0, {}, chosen);
    state.windows = windows;
    state.tokens = static_cast<uint64_t>(windows) * 31;
    state.report.sources[2] = {5, 10, 3};
    ASSERT_TRUE(unfinished.Write(state).ok());
  }
  const auto read = unfinished.Read(3, 8);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->windows, 2);
  EXPECT_EQ(read->tokens, 62u);
  EXPECT_EQ(read->report.sources[2].chosen, 10u);
  ASSERT_TRUE(read->paths->Write(folder / "a", 1).ok());
  ASSERT_TRUE(state.paths->Write(folder / "b", 1).ok());
  EXPECT_EQ(FileContents(folder / "a"), FileContents(folder / "b"));
  EXPECT_TRUE(absl::IsFailedPrecondition(UnfinishedDictionary(file, 8).Read(3, 8).status()));
  EXPECT_FALSE(std::filesystem::exists(file + ".unfinished-1"));
  WriteContents(file + ".unfinished", "{");
  EXPECT_TRUE(absl::IsDataLoss(unfinished.Read(3, 8).status()));
}

}  // namespace
}  // namespace moed
