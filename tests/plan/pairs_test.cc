// Planners and an encoder-decoder: pairs of a source and its answer take the place of a text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "nlohmann/json.hpp"
#include "tests/file_text.h"
#include "tests/paths.h"
#include "tests/plan/plan_rig.h"
#include "tools/plan/loss_evaluator.h"

namespace moed {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class PairsTest : public PlanRig {
 protected:
  PairsTest() : PlanRig(".widths.json") {}
  void SetUp() override {
    ASSERT_EQ(RunPack({checkpoint_, store_, "--expert-formats", "bf16,q2:channel", "--trunk-format", "bf16"}).exit_code, 0);
  }
  // Lines of the golden source, each with the first so many of its greedy tokens.
  std::string Pairs(std::vector<size_t> targets) const {
    std::string lines;
    for (const size_t tokens : targets) {
      const std::vector<int> greedy = golden_["greedy"];
      const std::vector<int> target(greedy.begin(), greedy.begin() + static_cast<std::ptrdiff_t>(tokens));
      lines += Json{{"source", golden_["prompt"]}, {"target", target}}.dump() + "\n";
    }
    return lines;
  }
  absl::StatusOr<std::unique_ptr<LossEvaluator>> Open(const std::string& pairs, int tokens = 1000) const {
    return LossEvaluator::Open(store_, pairs, {.tokens = tokens, .cache_bytes = 1 << 20});
  }

  const std::string checkpoint_ = UnpackedCheckpoint("switch_transformers");
  const Json golden_ = Json::parse(ReadFileText(checkpoint_ + "/golden.json.xz"));
};

TEST_F(PairsTest, ALossIsThatOfTransformersLogits) {
  const std::vector<std::vector<double>> logits = golden_["logits"];
  double expected = 0;
  for (size_t row = 0; row < logits.size(); ++row) {
    double sum = 0;
    for (const double logit : logits[row]) sum += std::exp(logit);
    expected += std::log(sum) - logits[row][golden_["greedy"][row].get<size_t>()];
  }
  const auto evaluator = Open(Pairs({logits.size(), logits.size()}));
  ASSERT_TRUE(evaluator.ok()) << evaluator.status();
  EXPECT_EQ((*evaluator)->scored_tokens(), 2 * static_cast<int>(logits.size()));
  AssignedPrecisions rule((*evaluator)->store().description(), std::vector<Precision>((*evaluator)->experts(), 0));
  const auto loss = (*evaluator)->Loss(rule, nullptr, [] { return false; });
  ASSERT_TRUE(loss.ok()) << loss.status();
  EXPECT_NEAR(*loss, expected / static_cast<double>(logits.size()), 1e-4);
}

TEST_F(PairsTest, PairsAreTakenWhole) {
  const std::string pairs = Pairs({3, 4, 2});
  EXPECT_EQ((*Open(pairs, 8))->windows(), 2);
  EXPECT_EQ((*Open(pairs, 9))->scored_tokens(), 9);
  EXPECT_NE((*Open(pairs, 8))->tokens_hash(), (*Open(pairs, 9))->tokens_hash());
}

TEST_F(PairsTest, WhatIsNoPairIsRefusedWithItsLine) {
  const std::string good = Pairs({2});
  struct Case {
    std::string pairs;
    const char* reason;
  };
  for (const Case& bad :
       {Case{"Once upon a time", R"(line 1: "source" is missing)"}, Case{good + "{}", R"(line 2: "source" is)"},
        Case{R"({"source": [3], "target": []})", R"("target" is missing)"},
        Case{R"({"source": [3, -1], "target": [4]})", R"("source" has -1; token ids are from 0 to)"},
        Case{R"({"source": [3], "target": [4.5]})", R"("target" has 4.5)"},
        Case{R"({"source": [3], "target": [99999999999]})", R"("target" has 99999999999)"},
        Case{R"({"source": [3], "target": [)" + std::string(100'000, '[') + std::string(100'000, ']') + "]}", R"("target" has )"},
        Case{"", "no pair has a target within 1000 tokens"}}) {
    const auto evaluator = Open(bad.pairs);
    EXPECT_EQ(evaluator.status().code(), absl::StatusCode::kInvalidArgument) << bad.pairs;
    EXPECT_THAT(std::string(evaluator.status().message()), HasSubstr(bad.reason));
  }
}

// Sources are longer than targets, or shorter.
TEST_F(PairsTest, PlannersTakeThemOrRefuseThem) {
  const size_t source = golden_["prompt"].size();
  const struct {
    Arguments planner;
    int exit_code;
    std::string says;
  } cases[] = {
      {{"widths", "--loss-percent", "10000", "--confidence", "0"}, 0, "widths.json"},
      {{"slots", "--budget", "40000"}, 0, "slots.json"},
      {{"moments"}, 0, ""},
      {{"dictionary"}, 0, "48 tokens"},
      {{"learn"}, 0, "48 tokens"},
      {{"hobbit"}, 1, "s.moed is an encoder-decoder"},
      {{"fate"}, 1, "s.moed is an encoder-decoder"},
  };
  for (const size_t tokens : {12, 48}) {
    ASSERT_NE(tokens, source);
    WriteContents(text_, Pairs(std::vector<size_t>(48 / tokens, tokens)));
    for (const auto& [planner, exit_code, says] : cases) {
      Arguments more(planner.begin() + 1, planner.end());
      more.emplace_back("--force");
      const CommandResult result = RunProgram("moed-plan", Plan(planner[0], more));
      EXPECT_EQ(result.exit_code, exit_code) << planner[0] << ", " << tokens << ": " << result.err;
      EXPECT_THAT(result.out + result.err, HasSubstr(says)) << planner[0] << ", " << tokens;
    }
  }
}

TEST_F(PairsTest, AllNamesWhatIsNotMade) {
  WriteContents(text_, Pairs({12, 12, 12, 12}));
  const CommandResult result = RunProgram("moed-plan", Plan("all", {"--shares", "50", "--loss-percent", "10000"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("not made: hobbit.json"), HasSubstr("not made: fate.json")));
  for (const char* made : {"paths", "learned", "widths.json", "slots-50.json"}) {
    EXPECT_TRUE(std::filesystem::exists(store_ + ".plans/" + made)) << made;
  }
}

}  // namespace
}  // namespace moed
