// moed-plan hobbit and moed-plan all as a user runs them, and the presets that read what they wrote.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/base/status.h"
#include "core/expert/fidelity/hobbit.h"
#include "core/expert/presets/preset.h"
#include "nlohmann/json.hpp"
#include "tests/plan/plan_rig.h"
#include "tools/plan/hobbit_unfinished.h"
#include "tools/plan/loss_evaluator.h"

namespace moed {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class HobbitCommandTest : public PlanRig {
 protected:
  HobbitCommandTest() : PlanRig(".hobbit.json") {}
  void SetUp() override { Prepare(MakeTinyCheckpoint("olmoe"), "q8,q2:channel"); }
};

TEST_F(HobbitCommandTest, ThePresetTakesWhatWasFound) {
  const CommandResult result = RunProgram("moed-plan", Plan("hobbit", {}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("T1 = "), HasSubstr("miss penalty")));
  EXPECT_FALSE(std::filesystem::exists(out_ + ".journal"));
  const Json json = Json::parse(FileContents(out_));
  EXPECT_NEAR(json["report"]["high"], .67, .05) << "of the text's own scores";
  EXPECT_GT(json["report"]["miss_penalty"], 0);
  EXPECT_LT(json["report"]["miss_penalty"], 1);

  const auto reader = *StoreReader::Open(store_);
  const auto thresholds = [&](const std::string& options) {
    const auto setup = ChoosePreset({.preset = "hobbit", .options = *PartOptions::Parse(options)}, *reader);
    EXPECT_TRUE(setup.ok()) << setup.status();
    return *HobbitThresholdsOf(setup->options);
  };
  EXPECT_EQ(thresholds("hobbit-plan=" + out_).high, json["t1"].get<double>());
  EXPECT_EQ(thresholds("hobbit-plan=" + out_).low, json["t2"].get<double>());
  EXPECT_EQ(thresholds("hobbit-t1=0.01,hobbit-plan=" + out_).high, .01) << "what is given counts";
  EXPECT_EQ(thresholds("").high, .6);
}

TEST_F(HobbitCommandTest, KilledAndResumedItArrivesAtTheSamePlan) {
  InterruptAndResume(Plan("hobbit", {}, 2000), 24);
  EXPECT_EQ(FileContents(out_), FileContents(whole()));
  EXPECT_FALSE(std::filesystem::exists(out_ + ".unfinished"));
}

// Interrupted early or late.
TEST_F(HobbitCommandTest, InterruptedWhileItRoutesItGoesOnFromThere) {
  const auto arguments = [&](const std::string& out) { return Plan("hobbit", {"--out", out}, 2000); };
  ASSERT_EQ(RunProgram("moed-plan", arguments(whole())).exit_code, 0);
  const bool kept = InterruptOften(arguments(out_));
  if (!std::filesystem::exists(out_)) {
    const CommandResult last = RunProgram("moed-plan", arguments(out_));
    ASSERT_EQ(last.exit_code, 0) << last.err;
    EXPECT_EQ(last.err.find("are already routed") != std::string::npos, kept) << last.err;
  }
  EXPECT_EQ(FileContents(out_), FileContents(whole()));
}

TEST_F(HobbitCommandTest, WhatIsKeptOfItsRoutingIsOfItsTextAlone) {
  const auto open = [&](int tokens) {
    return *LossEvaluator::Open(store_, FileContents(text_), {tokens, 32, /*threads=*/1, /*cache_bytes=*/1 << 20});
  };
  const auto text = open(300), other = open(301);
  const UnfinishedRouting unfinished(out_, *text);
  HobbitRouting routing = unfinished.TakeUp();
  EXPECT_EQ(routing.tokens(), 0u);
  const int32_t experts[] = {3, 1};
  const float weights[] = {.5f, .25f};
  for (int window = 0; window < 2; ++window) {
    for (int token = 0; token < text->WindowTokens(window); ++token) {
      for (int layer = 0; layer < routing.layers; ++layer) AddScored(experts, weights, routing);
    }
    routing.sequence_ends.push_back(routing.tokens());
  }
  testing::internal::CaptureStderr();
  ASSERT_TRUE(unfinished.Write(routing).ok());
  const HobbitRouting taken = unfinished.TakeUp();
  EXPECT_EQ(UnfinishedRouting(out_, *other).TakeUp().tokens(), 0u);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), AllOf(HasSubstr("2 windows"), HasSubstr("starting over")));
  EXPECT_EQ(taken.sequence_ends, routing.sequence_ends);
  ASSERT_EQ(taken.choices.size(), routing.choices.size());
  EXPECT_EQ(taken.choices.back().expert, 1);
  EXPECT_EQ(taken.choices.back().before, routing.choices.back().before);
  const CommandResult result = RunProgram("moed-plan", Plan("hobbit", {}));
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("2 windows of the text are already routed"));
  EXPECT_FALSE(std::filesystem::exists(out_ + ".unfinished"));
}

TEST_F(HobbitCommandTest, AllMakesEveryPlanOnce) {
  const std::string folder = store_ + ".plans";
  const Arguments all = Plan("all", {"--shares", "1,50", "--loss-percent", "1000"}, 128);
  const CommandResult result = RunProgram("moed-plan", all);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("[7 of 7] slots-50.json"));
  EXPECT_THAT(result.out, HasSubstr(folder + ": for bench/compare systems --plans"));
  EXPECT_THAT(result.out, HasSubstr("not made: slots-1.json: --budget")) << "not one slot a layer";
  const auto reader = *StoreReader::Open(store_);
  const std::pair<const char*, const char*> kTaken[] = {{"edgemoe", "widths={}/widths.json,paths={}/paths"},
                                                        {"eap", "paths={}/paths"},
                                                        {"hobbit", "hobbit-plan={}/hobbit.json"},
                                                        {"fate", "fate-plan={}/fate.json"},
                                                        {"swapmoe", "slots={}/slots-50.json"}};
  for (auto [preset, options] : kTaken) {
    std::string text = options;
    for (size_t at; (at = text.find("{}")) != std::string::npos;) text.replace(at, 2, folder);
    const auto setup = ChoosePreset({.preset = preset, .options = *PartOptions::Parse(text)}, *reader);
    EXPECT_TRUE(setup.ok()) << setup.status();
  }
  EXPECT_TRUE(std::filesystem::exists(folder + "/learned"));

  const auto written = std::filesystem::last_write_time(folder + "/hobbit.json");
  std::filesystem::remove(folder + "/paths");
  const CommandResult again = RunProgram("moed-plan", all);
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_TRUE(std::filesystem::exists(folder + "/paths"));
  EXPECT_THAT(again.err, HasSubstr("hobbit.json is there already"));
  EXPECT_EQ(std::filesystem::last_write_time(folder + "/hobbit.json"), written);
}

TEST_F(HobbitCommandTest, AllKeepsPlansOfOneStoreTextAndSettingInAFolder) {
  const std::string folder = store_ + ".plans/";
  int tokens = 128;
  std::string loss_percent = "1000";
  const auto all = [&](const Arguments& more) {
    Arguments arguments = {"--shares", "1", "--loss-percent", loss_percent};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunProgram("moed-plan", Plan("all", arguments, tokens));
  };
  const auto expect_refusal = [&] {
    const CommandResult result = all({});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr("holds plans of another store, text or setting; --force replaces them"));
  };
  std::filesystem::create_directory(folder);
  WriteContents(folder + "slots-7.json", "of an older version");
  expect_refusal();
  ASSERT_EQ(all({"--force"}).exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(folder + "slots-7.json"));
  loss_percent = "1001";
  expect_refusal();
  loss_percent = "1000";
  tokens = 160;
  expect_refusal();
  tokens = 128;
  const std::string before = FileContents(folder + "learned"), text = FileContents(text_);
  WriteContents(text_, text.substr(text.size() / 2));
  expect_refusal();
  EXPECT_EQ(FileContents(folder + "learned"), before);

  const CommandResult anew = all({"--force"});
  ASSERT_EQ(anew.exit_code, 0) << anew.err;
  EXPECT_THAT(anew.err, Not(HasSubstr("is there already")));
  EXPECT_NE(FileContents(folder + "learned"), before);
  const CommandResult again = all({"--force"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.err, HasSubstr("learned is there already")) << "the command of one that was interrupted";
}

TEST_F(HobbitCommandTest, RefusesWithWhatIsAllowed) {
  const std::string single = folder_ / "single.moed";
  ASSERT_EQ(RunPack({folder_ / "in", single}).exit_code, 0);
  const struct {
    std::vector<std::string> arguments;
    int exit_code;
    std::string expected;
  } cases[] = {
      {{"hobbit", single, text_, "--window", "32", "--tokens", "64"}, 1, ",q2p makes a store of two"},
      {Plan("hobbit", {"--high", "0.8", "--low", "0.3"}), 1, "sum to more than 1"},
      {Plan("hobbit", {"--high", "1.5"}), 2, "--high"},
      {Plan("all", {"--shares", "0"}), 2, "--shares"},
  };
  for (const auto& [arguments, exit_code, expected] : cases) {
    const CommandResult result = RunProgram("moed-plan", arguments);
    EXPECT_EQ(result.exit_code, exit_code) << expected << ": " << result.err;
    EXPECT_THAT(result.err, HasSubstr(expected));
    EXPECT_FALSE(std::filesystem::exists(out_));
  }
}

TEST(HobbitPlanFile, HostileFilesAreRefused) {
  TemporaryFolder folder;
  const std::string path = folder / "hobbit.json";
  const Json good = {{"model_hash", "00000000000000ab"},
                     {"t1", .5},
                     {"t2", .8},
                     {"high_cache", .9},
                     {"lru", .5},
                     {"lfu", .2},
                     {"lhu", .2},
                     {"fld", .1},
                     {"report", Json::object()}};
  const auto read = [&](const std::string& text) {
    WriteContents(path, text);
    return ReadHobbitPlan(path, 0xab);
  };
  const auto plan = read(good.dump());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->thresholds.low, .8);
  EXPECT_EQ(plan->tuning.high_cache, .9);
  EXPECT_EQ(plan->tuning.weights.fld, .1);
  const struct {
    const char* name;
    Json value;
    const char* expected;
  } cases[] = {
      {"model_hash", "00000000000000ac", "made for the model 00000000000000ac"},
      {"t1", .9, "t1 0.9 is above t2 0.8"},
      {"t2", 1.5, "t2 is 1.5, allowed are 0 to 1"},
      {"high_cache", 1.1, "high_cache is 1.1, allowed are 0 to 1"},
      {"lru", .6, "lru, lfu, lhu and fld sum to 1.1, 1 is needed"},
      {"lfu", "x", "not {"},
      {"lhu", -1, "lhu is -1"},
  };
  for (const auto& [name, value, expected] : cases) {
    Json bad = good;
    bad[name] = value;
    const absl::Status status = read(bad.dump()).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << bad;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(path), HasSubstr(expected)));
  }
  EXPECT_THAT(std::string(read("").status().message()), HasSubstr("t1"));
}

}  // namespace
}  // namespace moed
