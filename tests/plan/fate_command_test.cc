// moed-plan fate as a user runs it, on a tiny random checkpoint, and the preset that reads what it wrote.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstring>
#include <thread>

#include "core/base/status.h"
#include "core/expert/fidelity/fate.h"
#include "core/expert/presets/preset.h"
#include "nlohmann/json.hpp"
#include "tests/plan/plan_rig.h"

namespace moed {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class FateCommandTest : public PlanRig {
 protected:
  FateCommandTest() : PlanRig(".fate.json") {}
  void SetUp() override { Prepare(MakeTinyCheckpoint("olmoe"), "q8,q2:channel"); }
  Arguments Fate(const Arguments& more = {}) const { return Plan("fate", more); }
};

TEST_F(FateCommandTest, ThePresetTakesWhatWasMeasured) {
  const CommandResult result = RunProgram("moed-plan", Fate({"--loss-percent", "1000"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("p = 1.00"), HasSubstr("above the 75th percentile"), HasSubstr("shallow")));
  EXPECT_FALSE(std::filesystem::exists(out_ + ".journal"));
  const Json json = Json::parse(FileContents(out_));
  EXPECT_EQ(json["prefill_low"], 1.0) << "any loss is allowed";
  const auto reader = *StoreReader::Open(store_);
  const size_t layers = reader->description().moe_layers.size();
  ASSERT_EQ(json["report"]["recall_widened"].size(), layers);
  for (size_t layer = 0; layer < layers; ++layer) {
    const double widened = json["report"]["recall_widened"][layer];
    EXPECT_TRUE(layer == 0 ? widened == 0 : widened >= 0 && widened <= 1) << widened;
  }
  EXPECT_EQ(json["report"]["shares"].size(), 11u);
  EXPECT_EQ(json["report"]["shares"][0]["loss"], 0);

  const auto preset = [&](const std::string& name, const std::string& options) {
    return ChoosePreset({.preset = name, .options = *PartOptions::Parse(options)}, *reader);
  };
  const auto setup = preset("fate", "fate-plan=" + out_);
  ASSERT_TRUE(setup.ok()) << setup.status();
  EXPECT_EQ(*FatePrefillLow(setup->options), 1);
  EXPECT_EQ(*FateShallowLayers(setup->options), json["shallow_layers"].get<int>());
  const auto told = preset("fate", "fate-prefill-low=0.5,fate-plan=" + out_);
  EXPECT_EQ(*FatePrefillLow(told->options), .5) << "what is given counts";
  EXPECT_TRUE(preset("eap", "fate-plan=" + out_).ok());
  EXPECT_THAT(preset("hobbit", "fate-plan=" + out_).status().ToString(), HasSubstr("unknown preset option"));

  const std::string other = folder_ / "other.moed";
  ASSERT_EQ(RunPack({folder_ / "in", other, "--expert-formats", "q8,q2"}).exit_code, 0);
  EXPECT_THAT(ChoosePreset({.preset = "fate", .options = *PartOptions::Parse("fate-plan=" + out_)}, **StoreReader::Open(other))
                  .status()
                  .ToString(),
              AllOf(HasSubstr(out_), HasSubstr("made for the model")));
  const CommandResult again = RunProgram("moed-plan", Fate());
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.err, HasSubstr("--force"));
}

TEST_F(FateCommandTest, NothingIsLoweredWhereNothingMayBeLost) {
  const CommandResult free = RunProgram("moed-plan", Fate({"--loss-percent", "1000", "--out", folder_ / "free.json"}));
  ASSERT_EQ(free.exit_code, 0) << free.err;
  const CommandResult result = RunProgram("moed-plan", Fate({"--loss-percent", "0"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json json = Json::parse(FileContents(out_));
  EXPECT_LE(json["report"]["loss"].get<double>(), 0);
  const Json all = Json::parse(FileContents(folder_ / "free.json"));
  EXPECT_EQ(json["report"]["reference_nats_per_token"], all["report"]["reference_nats_per_token"]);
  EXPECT_EQ(json["shallow_layers"], all["shallow_layers"]);
}

TEST_F(FateCommandTest, KilledAndResumedItArrivesAtTheSamePlan) {
  InterruptAndResume(Fate({"--loss-percent", "1000"}), 24);
  EXPECT_EQ(FileContents(out_), FileContents(whole()));
}

TEST_F(FateCommandTest, RefusesWithWhatIsAllowed) {
  const std::string single = folder_ / "single.moed";
  ASSERT_EQ(RunPack({folder_ / "in", single}).exit_code, 0);
  const struct {
    std::vector<std::string> arguments;
    int exit_code;
    std::string expected;
  } cases[] = {
      {{"fate", store_}, 2, "TEXT"},
      {{"fate", single, text_, "--window", "32", "--tokens", "64"}, 1, ",q2p makes a store of two"},
      {Fate({"--loss-percent", "-1"}), 2, "--loss-percent"},
      {Fate({"--shallow-recall", "1.5"}), 2, "--shallow-recall"},
  };
  for (const auto& [arguments, exit_code, expected] : cases) {
    const CommandResult result = RunProgram("moed-plan", arguments);
    EXPECT_EQ(result.exit_code, exit_code) << expected << ": " << result.err;
    EXPECT_THAT(result.err, HasSubstr(expected));
    EXPECT_FALSE(std::filesystem::exists(out_));
  }
}

TEST(FatePlanFile, HostileFilesAreRefused) {
  TemporaryFolder folder;
  const std::string path = folder / "fate.json";
  const auto read = [&](const std::string& text) {
    WriteContents(path, text);
    return ReadFatePlan(path, 0xab, 4);
  };
  const std::string head = R"({"model_hash":"00000000000000ab",)";
  const auto plan = read(head + R"("prefill_low":0.25,"shallow_layers":4,"report":{}})");
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->prefill_low, .25);
  EXPECT_EQ(plan->shallow_layers, 4);
  const struct {
    std::string text;
    const char* expected;
  } cases[] = {
      {"", "prefill_low"},
      {R"({"model_hash":"00000000000000ac","prefill_low":0,"shallow_layers":1})", "made for the model 00000000000000ac"},
      {head + R"("prefill_low":1.5,"shallow_layers":1})", "prefill_low is 1.5, allowed are 0 to 1"},
      {head + R"("prefill_low":"x","shallow_layers":1})", "not {"},
      {head + R"("prefill_low":0.5,"shallow_layers":5})", "shallow_layers is 5, allowed are 0 to 4"},
      {head + R"("prefill_low":0.5,"shallow_layers":-1})", "shallow_layers is -1"},
      {head + R"("prefill_low":0.5,"shallow_layers":1.5})", "shallow_layers is 1.5"},
      {head + R"("prefill_low":0.5})", "shallow_layers"},
  };
  for (const auto& [text, expected] : cases) {
    const absl::Status status = read(text).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(path), HasSubstr(expected)));
  }
  EXPECT_THAT(std::string(ReadFatePlan(folder / "none", 0xab, 4).status().message()), HasSubstr("cannot read"));
}

}  // namespace
}  // namespace moed
