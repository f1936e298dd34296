// moed-plan as a user runs it, on a tiny random checkpoint.
#include "tests/pack/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <thread>

#include "core/base/status.h"
#include "core/expert/fidelity/mask.h"
#include "core/expert/presets/preset.h"
#include "core/store/file_lock.h"
#include "nlohmann/json.hpp"
#include "tests/plan/plan_rig.h"
#include "tools/plan/loss_evaluator.h"
#include "tools/plan/measured_losses.h"

namespace moed {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class PlanCommandTest : public PlanRig {
 protected:
  PlanCommandTest() : PlanRig(".widths.json") {}
  // A random model to whose logits the experts matter: their weights times 2^5.
  void SetUp() override {
    TinyCheckpoint tiny = MakeTinyCheckpoint("olmoe");
    for (auto& [name, tensor] : tiny.tensors) {
      if (name.find(".experts.") == std::string::npos) continue;
      for (size_t at = 0; at < tensor.bytes.size(); at += 2) {
        uint16_t bf16;
        std::memcpy(&bf16, tensor.bytes.data() + at, 2);
        bf16 = static_cast<uint16_t>(bf16 + (5 << 7));
        std::memcpy(tensor.bytes.data() + at, &bf16, 2);
      }
    }
    Prepare(tiny, "q8,q4:channel,q2:channel");
  }
  Arguments Widths(const Arguments& more = {}) const { return Plan("widths", more); }
  std::unique_ptr<LossEvaluator> Evaluator(int threads = 1, uint64_t cache_bytes = 1 << 20) const {
    auto evaluator = LossEvaluator::Open(store_, FileContents(text_), {300, 32, threads, cache_bytes});
    EXPECT_TRUE(evaluator.ok()) << evaluator.status();
    return *std::move(evaluator);
  }
  static double Nats(LossEvaluator& evaluator, std::vector<Precision> precisions) {
    AssignedPrecisions rule(evaluator.store().description(), std::move(precisions));
    const auto nats = evaluator.Loss(rule, nullptr, [] { return false; });
    EXPECT_TRUE(nats.ok()) << nats.status();
    return nats.value_or(NAN);
  }
};

std::vector<Precision> Flat(const Json& layers) {
  std::vector<Precision> all;
  for (const Json& layer : layers) {
    for (const Json& precision : layer) all.push_back(precision.get<Precision>());
  }
  return all;
}

TEST_F(PlanCommandTest, ThePlanMeetsTheLossAndTheDaemonsRuleReadsIt) {
  const auto evaluator = Evaluator();
  const int experts = evaluator->experts();
  const double reference = Nats(*evaluator, std::vector<Precision>(experts, 0));
  const double worst = Nats(*evaluator, std::vector<Precision>(experts, 2));
  ASSERT_GT(std::fabs(worst - reference), 1e-6);
  const double allowed = std::expm1(std::fabs(worst - reference)) * 0.4;
  const CommandResult result =
      RunProgram("moed-plan", Widths({"--confidence", "0", "--loss-percent", std::to_string(allowed * 100)}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_FALSE(std::filesystem::exists(out_ + ".journal"));
  const Json json = Json::parse(FileContents(out_));
  const std::vector<Precision> precisions = Flat(json["precisions"]);
  ASSERT_EQ(precisions.size(), static_cast<size_t>(experts));
  EXPECT_EQ(json["formats"], Json({"q8", "q4", "q2"}));
  EXPECT_DOUBLE_EQ(json["report"]["nats_per_token"].get<double>(), Nats(*evaluator, precisions));
  EXPECT_LE(Nats(*evaluator, precisions), reference + std::log1p(allowed) + 1e-6);
  EXPECT_GT(json["report"]["lowered_experts"], 0);
  EXPECT_EQ(json["report"]["expert_bytes"], evaluator->store().all_expert_bytes()) << "records of one page at every width";

  const StoreDescription& description = evaluator->store().description();
  ExpertModelShape model;
  model.moe_layers = description.moe_layers;
  model.experts_per_layer = description.experts_per_layer;
  model.precisions = 3;
  const auto setup = ChoosePreset({.preset = "edgemoe", .options = *PartOptions::Parse("widths=" + out_)}, evaluator->store());
  ASSERT_TRUE(setup.ok()) << setup.status();
  const auto rule = MakeFidelityRule("widths", {model}, setup->options);
  ASSERT_TRUE(rule.ok()) << rule.status();
  EXPECT_EQ((*rule)->PrefetchPrecision({description.moe_layers[1], 2}, 0), precisions[description.experts_per_layer + 2]);

  const CommandResult again = RunProgram("moed-plan", Widths());
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.err, HasSubstr("--force"));
}

// The same bits on one thread and three, with all experts cached and with almost none, whatever was measured before.
TEST_F(PlanCommandTest, ALossDependsOnNothingButTheConfiguration) {
  const auto one = Evaluator(1, 64 << 20), other = Evaluator(3, 100 << 10);
  const int experts = one->experts();
  std::vector<Precision> mixed(experts);
  for (int e = 0; e < experts; ++e) mixed[e] = static_cast<Precision>(e * 7 % 3);
  const double first = Nats(*one, mixed);
  EXPECT_NE(Nats(*one, std::vector<Precision>(experts, 2)), first);
  EXPECT_EQ(Nats(*one, mixed), first);
  EXPECT_EQ(Nats(*other, mixed), first);
}

TEST_F(PlanCommandTest, AllAtOnePrecisionIsTheStoreOfThatPrecision) {
  const std::string single = folder_ / "single.moed";
  ASSERT_EQ(RunPack({folder_ / "in", single, "--expert-formats", "q2:channel"}).exit_code, 0);
  const auto evaluator = Evaluator();
  auto alone = LossEvaluator::Open(single, FileContents(text_), {300, 32, 1, 1 << 20});
  ASSERT_TRUE(alone.ok());
  EXPECT_EQ(Nats(**alone, std::vector<Precision>(evaluator->experts(), 0)),
            Nats(*evaluator, std::vector<Precision>(evaluator->experts(), 2)));
}

// A mask that forbids the router's favourite must be asked, and must change what is computed.
TEST_F(PlanCommandTest, AMaskTakesPart) {
  class FirstExpertsOnly final : public RouterMask {
   public:
    void Apply(LayerId, const TokenRouting&, const ResidencyView&, std::span<float> logits) override {
      for (size_t e = 3; e < logits.size(); ++e) logits[e] = -INFINITY;
    }
  };
  const auto evaluator = Evaluator();
  AssignedPrecisions rule(evaluator->store().description(), std::vector<Precision>(evaluator->experts(), 0));
  FirstExpertsOnly mask;
  const auto never = [] { return false; };
  const double plain = *evaluator->Loss(rule, nullptr, never);
  EXPECT_NE(*evaluator->Loss(rule, &mask, never), plain);
  EXPECT_EQ(*evaluator->Loss(rule, nullptr, never), plain);
}

TEST_F(PlanCommandTest, KilledAgainAndAgainItArrivesAtTheSamePlan) {
  InterruptAndResume(Widths({"--loss-percent", "0.0001"}), 48);
  EXPECT_EQ(FileContents(out_), FileContents(whole()));
}

TEST_F(PlanCommandTest, HalfOfTheTextConfirmsTheOther) {
  const CommandResult result = RunProgram("moed-plan", Widths({"--loss-percent", "50"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("on the half of the text that was not planned on: loss"));
  const Json confirmed = Json::parse(FileContents(out_))["report"]["confirmed"];
  EXPECT_EQ(confirmed["confidence"], 0.95);
  EXPECT_GE(confirmed["bound"], confirmed["loss"]);
  EXPECT_EQ(confirmed["holds"], confirmed["bound"] <= 0.5);
  const CommandResult few = RunProgram("moed-plan", {"widths", store_, text_, "--window", "32", "--tokens", "64", "--force"});
  EXPECT_EQ(few.exit_code, 1);
  EXPECT_THAT(few.err, HasSubstr("--confidence 0"));
}

TEST_F(PlanCommandTest, RefusesWithWhatIsAllowed) {
  const std::string single = folder_ / "single.moed";
  ASSERT_EQ(RunPack({folder_ / "in", single}).exit_code, 0);
  const struct {
    std::vector<std::string> arguments;
    int exit_code;
    std::string expected;
  } cases[] = {
      {{}, 2, "commands: all, widths, dictionary"},
      {{"length"}, 2, "commands: all, widths, dictionary"},
      {{"widths", store_}, 2, "TEXT"},
      {Widths({"--loss-percent", "-1"}), 2, "--loss-percent"},
      {Widths({"--speed"}), 2,
       "--tokens, --window, --threads, --cache-mib, --loss-percent, --widths, --confidence, --out, --force"},
      {{"widths", store_, folder_ / "none"}, 1, "none"},
      {{"widths", folder_ / "none", text_}, 1, "none"},
      {{"widths", store_, text_, "--tokens", "1000000", "--window", "64"}, 1, "1000000 are to be scored"},
      {{"widths", store_, text_, "--tokens", "300"}, 1, "a window of 256 tokens is more than the model's context of 64"},
      {{"widths", single, text_}, 1, "holds experts at q8 alone"},
      {Widths({"--widths", "q4,q3"}), 1, "no experts at 'q3'; it has: q8, q4, q2"},
      {Widths({"--widths", "q4,q4"}), 1, "names q4 twice"},
      {Widths({"--widths", "q4"}), 1, "name two or more"},
  };
  for (const auto& [arguments, exit_code, expected] : cases) {
    std::filesystem::remove(out_);
    const CommandResult result = RunProgram("moed-plan", arguments);
    EXPECT_EQ(result.exit_code, exit_code) << expected << ": " << result.err;
    EXPECT_THAT(result.err, HasSubstr(expected));
  }
  WriteContents(text_, "wolf \xff\xfe");
  EXPECT_THAT(RunProgram("moed-plan", Widths()).err, AllOf(HasSubstr("text.txt"), HasSubstr("UTF-8")));
}

TEST_F(PlanCommandTest, OneProcessAtATimeMakesAFile) {
  const auto files = [&] {
    return std::distance(std::filesystem::directory_iterator(folder_ / ""), std::filesystem::directory_iterator());
  };
  const auto before = files();
  for (const char* planner : {"widths", "dictionary", "learn", "moments"}) {
    const std::string out = folder_ / planner;
    auto lock = FileLock::Take(out + ".lock");
    ASSERT_TRUE(lock.ok()) << lock.status();
    EXPECT_TRUE(absl::IsUnavailable(FileLock::Take(out + ".lock").status()));
    const CommandResult result = RunProgram("moed-plan", Plan(planner, {"--out", out}));
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr("another process is making " + out));
    EXPECT_EQ(files(), before + 1) << "the lock alone";
    { const FileLock released = *std::move(lock); }
    EXPECT_EQ(files(), before);
  }
  WriteContents(out_ + ".lock", "");  // of a process that was killed
  EXPECT_EQ(RunProgram("moed-plan", Widths({"--confidence", "0"})).exit_code, 0);
  EXPECT_EQ(files(), before + 1) << "the plan alone";
}

TEST_F(PlanCommandTest, AllStopsWhereAnotherMakesItsPlans) {
  const std::string folder = store_ + ".plans";
  std::filesystem::create_directory(folder);
  const auto all = [&] { return RunProgram("moed-plan", Plan("all", {"--shares", "1"}, 128)); };
  {
    const auto lock = FileLock::Take(folder + "/made_of.lock");
    const CommandResult result = all();
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr("another process is making plans in " + folder));
    EXPECT_FALSE(std::filesystem::exists(folder + "/made_of"));
  }
  const auto lock = FileLock::Take(folder + "/paths.lock");
  const CommandResult result = all();
  EXPECT_EQ(result.exit_code, 1) << "not merely named at the end";
  EXPECT_THAT(result.err, HasSubstr("paths: another process is making"));
}

TEST(MeasuredLossesTest, KeepsThemForTheSameIdentityOnly) {
  TemporaryFolder folder;
  const std::string path = folder / "journal";
  {
    auto losses = MeasuredLosses::Open(path, 7);
    ASSERT_TRUE(losses.ok());
    ASSERT_TRUE(losses->Add(11, 3.25).ok());
    ASSERT_TRUE(losses->Add(12, -0.0).ok());
  }
  {
    auto losses = MeasuredLosses::Open(path, 7);
    EXPECT_EQ(losses->size(), 2u);
    EXPECT_EQ(losses->Find(11), 3.25);
    EXPECT_EQ(losses->Find(13), std::nullopt);
    EXPECT_FALSE(losses->started_over());
  }
  auto other = MeasuredLosses::Open(path, 8);
  EXPECT_EQ(other->size(), 0u);
  EXPECT_TRUE(other->started_over());
  ASSERT_TRUE(other->Remove().ok());
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace moed
