// moed-plan slots as a user runs it, on a tiny random checkpoint, and the preset that reads what it wrote.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <numeric>
#include <thread>

#include "core/base/status.h"
#include "core/expert/presets/preset.h"
#include "core/expert/swapmoe/slots.h"
#include "core/store/expert_norms.h"
#include "nlohmann/json.hpp"
#include "tests/plan/plan_rig.h"
#include "tools/plan/swapmoe_profile.h"

namespace moed {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class SlotsCommandTest : public PlanRig {
 protected:
  SlotsCommandTest() : PlanRig(".slots.json") {}
  void SetUp() override {
    Prepare(MakeTinyCheckpoint("olmoe"), "q8");
    reader_ = *StoreReader::Open(store_);
    layers_ = static_cast<int>(reader_->description().moe_layers.size());
    experts_ = reader_->description().experts_per_layer;
    record_bytes_ = reader_->largest_expert_bytes(kReferencePrecision);
  }
  // A budget for half of the experts and the spare slot.
  int Budget() const { return layers_ * experts_ / 2; }
  Arguments Slots(const Arguments& more = {}) const {
    Arguments few = {"--budget",        std::to_string((Budget() + 1) * record_bytes_),
                     "--allocations",   "6",
                     "--held-out",      "4",
                     "--update-tokens", "16",
                     "--generations",   "100"};
    few.insert(few.end(), more.begin(), more.end());
    return Plan("slots", few);
  }

  std::unique_ptr<StoreReader> reader_;
  int layers_ = 0;
  int experts_ = 0;
  uint64_t record_bytes_ = 0;
};

TEST_F(SlotsCommandTest, ThePlanKeepsTheBudgetAndThePresetReadsIt) {
  const CommandResult result = RunProgram("moed-plan", Slots());
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, AllOf(HasSubstr("slots by layer"), HasSubstr("rank correlation"), HasSubstr("on 4 held-out")));
  EXPECT_FALSE(std::filesystem::exists(out_ + ".journal"));
  const auto plan = ReadSlotsPlan(out_, reader_->model_hash(), layers_, experts_);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_LE(std::accumulate(plan->slots.begin(), plan->slots.end(), 0), Budget());
  const Json report = Json::parse(FileContents(out_))["report"];
  EXPECT_LE(report["nats_per_token"].get<double>(), report["equal_slots_nats_per_token"].get<double>() + .01);
  EXPECT_GT(report["expert_load_seconds"].get<double>(), 0);
  EXPECT_GT(report["expert_compute_seconds"].get<double>(), 0);

  const uint64_t record_bytes[] = {record_bytes_};
  ExpertModelShape model{reader_->description().moe_layers, experts_, 2, 1, record_bytes, (Budget() + 1) * record_bytes_};
  const auto setup = ChoosePreset({.preset = "swapmoe", .options = *PartOptions::Parse("slots=" + out_)}, *reader_);
  ASSERT_TRUE(setup.ok()) << setup.status();
  EXPECT_TRUE(MakePresetParts(*setup, {.model = model, .store = reader_.get()}).ok());

  const CommandResult again = RunProgram("moed-plan", Slots());
  EXPECT_EQ(again.exit_code, 1);
  EXPECT_THAT(again.err, HasSubstr("--force"));
}

TEST_F(SlotsCommandTest, NormsAreThoseOfTheDecodedWeights) {
  const auto norms = ExpertNorms(*reader_, [](uint64_t) { return true; });
  ASSERT_TRUE(norms.ok()) << norms.status();
  ASSERT_EQ(norms->size(), static_cast<size_t>(layers_ * experts_));
  EXPECT_EQ(ReadExpertNorms(*reader_).value(), *norms) << "moed-pack wrote others";
  const CachedKey key{reader_->description().moe_layers[1], 2, kReferencePrecision};
  const ExpertLayout& layout = reader_->description().precisions[0].layers[0];
  const std::string contents = FileContents(store_);
  double squares = 0;
  for (const ExpertSegment& segment : layout.segments) {
    const auto* packed = reinterpret_cast<const std::byte*>(contents.data() + reader_->RecordOffset(key) + segment.offset);
    std::vector<float> row(static_cast<size_t>(segment.cols));
    for (int r = 0; r < segment.rows; ++r) {
      DecodeRow(segment.format, packed, segment.cols, r, row.data());
      for (const float weight : row) squares += weight * weight;
    }
  }
  EXPECT_NEAR((*norms)[static_cast<size_t>(experts_ + 2)], std::sqrt(squares), 1e-4 * std::sqrt(squares));
  EXPECT_TRUE(absl::IsCancelled(ExpertNorms(*reader_, [](uint64_t done) { return done < 2; }).status()));
}

TEST_F(SlotsCommandTest, KilledAndResumedItArrivesAtTheSamePlan) {
  InterruptAndResume(Slots(), 64);
  const Json resumed = Json::parse(FileContents(out_)), at_once = Json::parse(FileContents(whole()));
  EXPECT_EQ(resumed["slots"], at_once["slots"]);
  EXPECT_EQ(resumed["norms"], at_once["norms"]);
}

TEST_F(SlotsCommandTest, RefusesWithWhatIsAllowed) {
  const struct {
    std::vector<std::string> arguments;
    int exit_code;
    std::string expected;
  } cases[] = {
      {{"slots", store_, text_}, 2, "--budget"},
      {{"slots", store_, text_, "--budget", "1"},
       1,
       StrCat("a spare one need ", (static_cast<uint64_t>(layers_) + 1) * record_bytes_, " bytes")},
      {{"slots", store_, text_, "--budget", "some"}, 1, "no number of bytes"},
      {Slots({"--mutation", "1.5"}), 2, "--mutation"},
      {Slots({"--allocations", "1"}), 2, "--allocations"},
      {Slots({"--population", "0"}), 2, "--population"},
      {{"slots", folder_ / "none", text_, "--budget", "1GiB"}, 1, "none"},
  };
  for (const auto& [arguments, exit_code, expected] : cases) {
    const CommandResult result = RunProgram("moed-plan", arguments);
    EXPECT_EQ(result.exit_code, exit_code) << expected << ": " << result.err;
    EXPECT_THAT(result.err, HasSubstr(expected));
    EXPECT_FALSE(std::filesystem::exists(out_));
  }
}

}  // namespace
}  // namespace moed
