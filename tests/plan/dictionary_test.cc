#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/status.h"
#include "core/store/store.h"
#include "tests/pack/command.h"
#include "tests/pack/tiny_checkpoint.h"
#include "tools/plan/dictionary_planner.h"

namespace moed {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Steps {
 public:
  Steps(PathCounter& counter) : counter_(counter) {}
  // One token through layers 0, 1 and 2.
  void Token(std::vector<std::vector<int32_t>> experts) {
    for (int layer = 0; layer < 3; ++layer) {
      std::vector<ExpertChoice> choices;
      for (const int32_t expert : experts[static_cast<size_t>(layer)]) choices.push_back({expert, .5f});
      const TokenRouting tokens[] = {{SessionId(1), TokenId(4), Phase::kPrefill, choices}};
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
  PathCounter counter(experts, 2, paths, report);
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

TEST(DictionaryCommand, WritesWhatFitsItsStoreAlone) {
  TemporaryFolder folder;
  MakeTinyCheckpoint("olmoe").Write(folder / "in");
  const std::string store = folder / "s.moed", text = folder / "text.txt", out = folder / "s.paths";
  ASSERT_EQ(RunPack({folder / "in", store}).exit_code, 0);
  std::string words;
  for (int i = 0; i < 400; ++i) words += StrCat("The ", i * 37 % 101, "th wolf of the ", i % 7, " woods said nothing. ");
  WriteContents(text, words);
  const std::vector<std::string> arguments = {"dictionary", store, text,    "--tokens", "300",     "--window", "32",
                                              "--threads",  "1",   "--out", out,        "--table", "64KiB"};
  const CommandResult made = RunProgram("moed-plan", arguments);
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, AllOf(HasSubstr("whole keys"), HasSubstr("frequency"), HasSubstr("100.0 %")));
  const auto reader = StoreReader::Open(store);
  ASSERT_TRUE(reader.ok());
  const auto layers = static_cast<int>((*reader)->description().moe_layers.size());
  const auto paths = ActivationPaths::Read(out, (*reader)->model_hash(), layers, (*reader)->description().experts_per_layer);
  ASSERT_TRUE(paths.ok()) << paths.status();
  EXPECT_LE((*paths)->memory_bytes(), (64u << 10) + 4096);
  EXPECT_FALSE(ActivationPaths::Read(out, (*reader)->model_hash() ^ 1, layers, (*reader)->description().experts_per_layer).ok());

  EXPECT_THAT(RunProgram("moed-plan", {"dictionary", store, text}).err, HasSubstr("--out"));
  EXPECT_NE(
      RunProgram("moed-plan", {"dictionary", store, text, "--tokens", "300", "--out", folder / "no" + "/such/folder"}).exit_code,
      0);
}

}  // namespace
}  // namespace moed
