#include "tools/pack/moments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <random>
#include <vector>

#include "core/base/status.h"
#include "core/store/store.h"
#include "tests/plan/plan_rig.h"

namespace moed {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class MomentsCommand : public PlanRig {
 protected:
  MomentsCommand() : PlanRig(".moments") {}

  ModelSpec Spec() const { return SpecFromJson(StoreReader::Open(store_).value()->description().model_spec).value(); }
  CommandResult PackCalibrated(const std::string& out, const Arguments& more) const {
    Arguments arguments = {folder_ / "in", out, "--expert-formats", "q8,q2s:gptq"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunPack(arguments);
  }
};

// Every token of a window but its last goes through top_k experts of every layer.
TEST_F(MomentsCommand, CountsWhatExpertsRead) {
  Prepare(MakeTinyCheckpoint("olmoe"), "bf16");
  const CommandResult made = RunProgram("moed-plan", Plan("moments", {}));
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, AllOf(HasSubstr("tokens"), HasSubstr("--calibration")));
  const ModelSpec spec = Spec();
  ExpertMoments moments(spec);
  const auto windows = moments.Take(out_, ExpertMoments::kWhole);
  ASSERT_TRUE(windows.ok()) << windows.status();
  EXPECT_EQ(*windows, 10);  // 300 tokens in windows of 32
  for (size_t layer = 0; layer < spec.MoeLayers().size(); ++layer) {
    EXPECT_EQ(moments.rows(layer), static_cast<uint64_t>((300 - 10) * spec.top_k));
    EXPECT_GT(moments.OfInputs(layer).weight(0), 0);
  }
}

// Experts are computed as their bytes arrive, which no two runs have in common.
TEST_F(MomentsCommand, TheOrderInWhichExpertsComeDoesNotMatter) {
  Prepare(MakeTinyCheckpoint("olmoe"), "bf16");
  const ModelSpec spec = Spec();
  constexpr int kRows = 3;
  std::minstd_rand random(7);
  std::uniform_real_distribution<float> any(-1, 1);
  const auto rows = [&](int cols) {
    std::vector<float> values(kRows * Blocks(cols) * kBlockColumns);
    for (float& value : values) value = any(random);
    return values;
  };
  const auto read = [](const std::vector<float>& values, int cols) {
    return Activations{.tokens = kRows, .cols = cols, .values = values.data()};
  };
  std::vector<std::vector<float>> inputs, inners;
  for (int expert = 0; expert < spec.experts; ++expert) {
    inputs.push_back(rows(spec.hidden));
    inners.push_back(rows(spec.expert_ffn));
  }
  const std::unique_ptr<Executor> executor = MakeThreadPool(2);
  const auto hash = [&](bool backwards) {
    ExpertMoments moments(spec);
    for (const LayerId layer : spec.MoeLayers()) {
      for (int i = 0; i < spec.experts; ++i) {
        const int expert = backwards ? spec.experts - 1 - i : i;
        moments.Add(layer, expert, read(inputs[expert], spec.hidden), read(inners[expert], spec.expert_ffn), *executor);
      }
    }
    moments.Settle(*executor);
    return moments.hash();
  };
  EXPECT_EQ(hash(true), hash(false));
}

TEST_F(MomentsCommand, InterruptedAndResumedItCollectsTheSame) {
  Prepare(MakeTinyCheckpoint("olmoe"), "q8", 2000);
  const auto arguments = [&](const std::string& out) { return Plan("moments", {"--out", out}, 6000); };
  ASSERT_EQ(RunProgram("moed-plan", arguments(whole())).exit_code, 0);
  const bool kept = InterruptOften(arguments(out_));
  if (!std::filesystem::exists(out_)) {
    const CommandResult last = RunProgram("moed-plan", arguments(out_));
    ASSERT_EQ(last.exit_code, 0) << last.err;
    EXPECT_EQ(last.err.find("resuming") != std::string::npos, kept) << last.err;
  }
  EXPECT_EQ(FileContents(out_), FileContents(whole()));
  EXPECT_FALSE(std::filesystem::exists(out_ + ".unfinished"));
}

TEST_F(MomentsCommand, APackWeighsErrorsByThem) {
  Prepare(MakeTinyCheckpoint("olmoe"), "q8");
  ASSERT_EQ(RunProgram("moed-plan", Plan("moments", {})).exit_code, 0);
  std::string first;
  for (const std::string threads : {"1", "3"}) {
    const std::string out = folder_ / ("out" + threads);
    const CommandResult packed = PackCalibrated(out, {"--calibration", out_, "--threads", threads});
    ASSERT_EQ(packed.exit_code, 0) << packed.err;
    if (first.empty()) first = FileContents(out);
    EXPECT_TRUE(FileContents(out) == first) << threads << " threads";
  }
  ASSERT_EQ(RunPack({folder_ / "in", folder_ / "nearest", "--expert-formats", "q8,q2s"}).exit_code, 0);
  EXPECT_FALSE(FileContents(folder_ / "nearest") == first);
  EXPECT_EQ(PackCalibrated(folder_ / "dry", {"--calibration", out_, "--dry-run"}).exit_code, 0);
}

TEST_F(MomentsCommand, WhatDoesNotFitIsSaid) {
  Prepare(MakeTinyCheckpoint("olmoe"), "q8");
  const std::string out = folder_ / "out";
  EXPECT_THAT(PackCalibrated(out, {}).err, HasSubstr("gptq wants --calibration FILE; moed-plan moments"));
  EXPECT_THAT(PackCalibrated(out, {"--calibration", folder_ / "none"}).err, HasSubstr("none"));
  EXPECT_THAT(RunPack({folder_ / "in", out, "--calibration", text_}).err, HasSubstr("--expert-formats names none"));
  EXPECT_THAT(RunPack({folder_ / "in", out, "--trunk-format", "q2s:gptq"}).err, HasSubstr("gptq is for experts"));
  EXPECT_EQ(PackCalibrated(out, {"--calibration", text_}).exit_code, 1);

  MakeTinyCheckpoint("qwen3_moe").Write(folder_ / "other");
  ASSERT_EQ(RunProgram("moed-plan", Plan("moments", {})).exit_code, 0);
  const CommandResult other = RunPack({folder_ / "other", out, "--expert-formats", "q2s:gptq", "--calibration", out_});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_THAT(other.err, HasSubstr(out_));
  EXPECT_FALSE(std::filesystem::exists(out));
}

}  // namespace
}  // namespace moed
