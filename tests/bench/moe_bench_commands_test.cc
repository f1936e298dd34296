// moe-bench's subcommands that need no daemon, as programs.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "core/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/paths.h"
#include "tests/replay/trace_files.h"

namespace moed {
namespace moe_bench_commands_test {

using nlohmann::json;
using testing::HasSubstr;

const std::string kTrace = " --trace-dir " + SourcePath("tests/replay/data") + " --limit-tokens 40 ";

class MoeBenchTest : public testing::Test {
 protected:
  void TearDown() override {
    std::remove(Path("out").c_str());
    std::remove(Path("err").c_str());
  }
  static std::string Path(const std::string& name) {
    return testing::TempDir() + "/moe_bench_" + std::to_string(getpid()) + "_" + name;
  }
  static std::string Read(const std::string& name) {
    std::ifstream file(Path(name), std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
  }
  static int Run(const std::string& arguments) {
    const std::string command = BuiltProgram("moe-bench") + " " + arguments + " > " + Path("out") + " 2> " + Path("err");
    return WEXITSTATUS(std::system(command.c_str()));
  }
};

TEST_F(MoeBenchTest, CalibratedWeightsMissNoMoreThanRecencyOrFrequencyAlone) {
  ASSERT_EQ(Run("calibrate-hobbit --budget 0.25 --high 1 --low 0 --json" + kTrace), 0) << Read("err");
  const json best = json::parse(Read("out"));
  const double sum =
      best.at("lru").get<double>() + best.at("lfu").get<double>() + best.at("lhu").get<double>() + best.at("fld").get<double>();
  EXPECT_NEAR(sum, 1, 1e-9);
  EXPECT_EQ(best.at("high"), 1);
  ASSERT_EQ(Run("replay --policy lru,hobbit --budget 0.25 --json" + kTrace), 0) << Read("err");
  const json replayed = json::parse(Read("out"));
  for (const json& policy : replayed.at("policies")) {
    EXPECT_LE(best.at("miss_penalty").get<double>(), 1 - policy.at("hit_ratio").get<double>() + 0.01) << policy.at("name");
  }
  // A miss of low precision costs a quarter of one of high.
  ASSERT_EQ(Run("calibrate-hobbit --budget 0.25 --json" + kTrace), 0) << Read("err");
  const json mixed = json::parse(Read("out"));
  EXPECT_NEAR(mixed.at("high"), 0.67, 0.01);
  EXPECT_NEAR(mixed.at("low"), 0.30, 0.02);
  EXPECT_LT(mixed.at("t1"), mixed.at("t2"));
  EXPECT_LT(mixed.at("miss_penalty"), best.at("miss_penalty"));
  EXPECT_GT(mixed.at("miss_penalty"), 0);
  EXPECT_EQ(Run("calibrate-hobbit --high 0.8 --low 0.3" + kTrace), 1);
  EXPECT_THAT(Read("err"), HasSubstr("sum to more than 1"));
  EXPECT_EQ(Run("calibrate-hobbit --train-dir x" + kTrace), 1);
  EXPECT_EQ(Run("calibrate-hobbit --budget 0.25 --trace-dir /nowhere"), 1);
  EXPECT_THAT(Read("err"), HasSubstr("/nowhere"));
  EXPECT_EQ(Run("calibrate-hobbit --budget 0" + kTrace), 1);
  EXPECT_THAT(Read("err"), HasSubstr("holds no expert"));
}

TEST_F(MoeBenchTest, WhatIsLearnedIsOfOnePolicyAndOneModel) {
  const std::string learned = " --learned-state " + Path("learned");
  EXPECT_NE(Run("replay --policy learned" + learned + kTrace), 0);
  EXPECT_THAT(Read("err"), HasSubstr("--store"));
  EXPECT_EQ(Run("replay --policy learned,lru --store x" + learned + kTrace), 1);
  EXPECT_THAT(Read("err"), HasSubstr("one policy of the daemon's at one budget"));
  EXPECT_EQ(Run("replay --policy learned --store /nowhere/store" + learned + kTrace), 1);
  EXPECT_THAT(Read("err"), HasSubstr("/nowhere/store"));
}

// Two sequences, of two tokens and of one.
TEST_F(MoeBenchTest, SessionsShareSteps) {
  const MemoryFolder folder;
  TraceFiles().Write(folder);
  const std::string replay =
      "replay --policy lru,belady --budget 0.25 --layers 2 --top-k 2 --experts 4 --expert-bytes 4096 --json";
  const auto steps = [&](const std::string& sessions) -> uint64_t {
    EXPECT_EQ(Run(StrCat(replay, " --trace-dir ", folder / "", sessions)), 0) << Read("err");
    const json policies = json::parse(Read("out")).at("policies");
    EXPECT_GE(policies.at(1).at("hit_ratio"), policies.at(0).at("hit_ratio"));
    return policies.at(1).at("steps");
  };
  EXPECT_EQ(steps(""), 3u);
  EXPECT_EQ(steps(" --sessions 2"), 2u);
  EXPECT_NE(Run(StrCat(replay, " --sessions 0", kTrace)), 0);
  EXPECT_THAT(Read("err"), HasSubstr("--sessions"));
}

TEST_F(MoeBenchTest, CostIsOfTheShapeThatIsAskedFor) {
  const std::string shape = "cost --layers 3 --experts 16 --top-k 2 --tokens 20 --json ";
  const std::string bytes = "--trunk-bytes 1e9 --expert-bytes 1e8 --memory-bytes-per-second 1e10";
  ASSERT_EQ(Run(shape + bytes), 0) << Read("err");
  const json cost = json::parse(Read("out"));
  EXPECT_EQ(cost.at("layers"), 3);
  EXPECT_GT(cost.at("cache_microseconds"), 0);
  EXPECT_DOUBLE_EQ(cost.at("step_bytes"), 1e9 + 3 * 2 * 1e8);
  EXPECT_DOUBLE_EQ(cost.at("step_microseconds"), 1.6e5);
  EXPECT_NEAR(cost.at("share_of_step").get<double>(),
              (cost.at("policy_microseconds").get<double>() + cost.at("prediction_microseconds").get<double>()) / 1.6e5, 1e-9);
  // Eight sessions share some experts.
  ASSERT_EQ(Run(shape + "--sessions 8 " + bytes), 0) << Read("err");
  const json eight = json::parse(Read("out"));
  EXPECT_GT(eight.at("step_bytes"), cost.at("step_bytes"));
  EXPECT_LT(eight.at("step_bytes").get<double>(), 1e9 + 8 * 3 * 2 * 1e8);
  EXPECT_EQ(Run("cost --experts 4 --top-k 5"), 1);
  EXPECT_THAT(Read("err"), HasSubstr("--top-k 5"));
  EXPECT_EQ(Run("cost --policy best --tokens 1"), 1);
  EXPECT_THAT(Read("err"), HasSubstr("unknown policy \"best\"; known: lru"));
}

}  // namespace moe_bench_commands_test
}  // namespace moed
