// Every rule on cases worked out by hand from its source.
#include <fstream>

#include "core/expert/cache/timing_meter.h"
#include "core/expert/fidelity/widths.h"
#include "tests/expert/demand_rig.h"

namespace moed {
namespace rules_test {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr Action kLow{ActionKind::kUse, 1};
constexpr Action kSkipped{ActionKind::kSkip};
constexpr uint64_t kModelHash = 0xabc;

PartContext Context(int precisions = 2) {
  PartContext context{StoreContext()};
  context.model.precisions = precisions;
  return context;
}
std::unique_ptr<FidelityRule> Rule(std::string_view name, std::string_view options = "", int precisions = 2) {
  return MakeFidelityRule(name, Context(precisions), PartOptions::Parse(options).value()).value();
}
absl::Status Refusal(std::string_view name, std::string_view options, int precisions = 2) {
  return MakeFidelityRule(name, Context(precisions), PartOptions::Parse(options).value()).status();
}

TEST(FidelityRules, ThoseThatNeedALowerPrecisionSayIt) {
  for (const FidelityRow& row : FidelityRules()) {
    if (row.least_precisions == 1) continue;
    const absl::Status status = Refusal(row.name, "", 1);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << row.name;
    EXPECT_THAT(MessageText(status), HasSubstr("2 precisions")) << row.name;
  }
}

TEST(FidelityRules, ExactAndLowest) {
  DemandRig rig;
  rig.Add(kSession, {{1, .75f}, {2, .25f}}, Fidelity::Fast());
  EXPECT_THAT(rig.Resolve(*Rule("exact")), Each(kExactly));
  EXPECT_THAT(rig.Resolve(*Rule("lowest")), Each(kLow));
  EXPECT_EQ(Rule("lowest")->PrefetchPrecision({kDemandLayer, 1}, 0), 1);
}

// Figure 5: s_0 = 0, s_1 = .5, s_2 = .75, s_3 = .9375 with these weights; T1 = .6, T2 = .9.
TEST(HobbitRule, HighLowAndSkippedByTheMassBefore) {
  DemandRig rig;
  rig.Add(kSession, {{1, .5f}, {2, .25f}, {3, .1875f}, {4, .0625f}}, Fidelity::Fast());
  EXPECT_THAT(rig.Resolve(*Rule("hobbit")), ElementsAre(kExactly, kExactly, kLow, kSkipped));
  EXPECT_THAT(rig.Resolve(*Rule("hobbit", "hobbit-t1=0.4,hobbit-t2=0.5")), ElementsAre(kExactly, kLow, kSkipped, kSkipped));
  EXPECT_THAT(rig.Resolve(*Rule("hobbit", "hobbit-t1=0,hobbit-t2=1")), ElementsAre(kExactly, kLow, kLow, kLow));
  EXPECT_THAT(rig.Resolve(*Rule("hobbit", "hobbit-t1=1,hobbit-t2=1")), Each(kExactly));
}

TEST(HobbitRule, OnlyMisses) {
  DemandRig rig;
  rig.Add(kSession, {{1, .5f}, {2, .25f}, {3, .1875f}, {4, .0625f}}, Fidelity::Fast());
  rig.resident.insert({kDemandLayer, 3, 0});
  rig.loading.insert({kDemandLayer, 4, 0});
  EXPECT_THAT(rig.Resolve(*Rule("hobbit")), Each(kExactly));
}

TEST(HobbitRule, TheLowestScoreOfSeveralTokensCounts) {
  DemandRig rig;
  rig.Add(kSession, {{1, .7f}, {2, .3f}}, Fidelity::Fast(), Phase::kPrefill);
  rig.Add(kSession, {{2, .7f}, {3, .3f}}, Fidelity::Fast(), Phase::kPrefill);
  EXPECT_THAT(rig.Resolve(*Rule("hobbit")), ElementsAre(kExactly, kExactly, kLow));
}

TEST(HobbitRule, WeightsAreNormalised) {
  DemandRig rig;  // .35 .15 are .7 .3 of the choices
  rig.Add(kSession, {{1, .35f}, {2, .15f}}, Fidelity::Fast());
  EXPECT_THAT(rig.Resolve(*Rule("hobbit")), ElementsAre(kExactly, kLow));
}

TEST(HobbitRule, RefusesThresholdsOutOfOrder) {
  const absl::Status status = Refusal("hobbit", "hobbit-t1=0.9,hobbit-t2=0.6");
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(MessageText(status), HasSubstr("0 <= T1 <= T2 <= 1"));
  EXPECT_THAT(MessageText(Refusal("hobbit", "hobbit-t1=1.5")), HasSubstr("from 0 to 1"));
  EXPECT_THAT(MessageText(Refusal("hobbit", "hobbit-t1=nan")), HasSubstr("from 0 to 1"));
  EXPECT_THAT(MessageText(Refusal("hobbit", "hobbit-t1=x")), HasSubstr("\"x\""));
}

TEST(FateRule, APromptTakesTheLeastPopularQuarterLow) {
  DemandRig rig;  // tokens: 1 three, 2 two, 3 two, 4 one
  rig.Add(kSession, {{1, .6f}, {2, .4f}}, Fidelity::Fast(), Phase::kPrefill);
  rig.Add(kSession, {{1, .6f}, {2, .4f}}, Fidelity::Fast(), Phase::kPrefill);
  rig.Add(kSession, {{1, .6f}, {3, .4f}}, Fidelity::Fast(), Phase::kPrefill);
  rig.Add(kSession, {{3, .6f}, {4, .4f}}, Fidelity::Fast(), Phase::kPrefill);
  EXPECT_THAT(rig.Resolve(*Rule("fate")), ElementsAre(kExactly, kExactly, kExactly, kLow));
  // Two of four; of those of two tokens, the one with the smaller share.
  EXPECT_THAT(rig.Resolve(*Rule("fate", "fate-prefill-low=0.5")), ElementsAre(kExactly, kLow, kExactly, kLow));
  EXPECT_THAT(rig.Resolve(*Rule("fate", "fate-prefill-low=0")), Each(kExactly));
  EXPECT_THAT(rig.Resolve(*Rule("fate", "fate-prefill-low=1")), Each(kLow));
}

// A token wants four: 8 ms of reads.
TEST(FateRule, UnforeseenMissesOfAnAnswerAreLowWhereALayersTimeDoesNotReadThemAll) {
  DemandRig rig;
  rig.Add(kSession, {{1, .5f}, {2, .25f}, {3, .25f}}, Fidelity::Fast());
  rig.resident.insert({kDemandLayer, 1, 0});
  rig.loading.insert({kDemandLayer, 2, 0});  // foreseen
  const auto rule = Rule("fate");
  EXPECT_THAT(rig.Resolve(*rule), Each(kExactly)) << "nothing is measured yet";
  rig.read_seconds = {.002, .001};
  rig.layer_seconds = .0081;
  EXPECT_THAT(rig.Resolve(*rule), Each(kExactly));
  for (const double layer : {.0079, .003, .0001}) {
    rig.layer_seconds = layer;
    EXPECT_THAT(rig.Resolve(*rule), ElementsAre(kExactly, kExactly, kLow));
  }
}

constexpr std::string_view kHeavyLowered = "priced-skip-part=0.1";

// Reads of 4 ms and 1 ms; choices of .5 .25 .21 .04, all missing: 16 ms of reads.
DemandRig PricedRig(Fidelity fidelity) {
  DemandRig rig;
  rig.Add(kSession, {{1, .5f}, {2, .25f}, {3, .21f}, {4, .04f}}, fidelity);
  rig.read_seconds = {.004, .001};
  return rig;
}

TEST(PricedRule, SpendsWhereItSavesMost) {
  const auto rule = Rule("priced");
  // By ms saved for the share: skipping 4 saves 4 for .04, lowering 3 saves 3 for .21, then 2 and 1.
  EXPECT_THAT(PricedRig(Fidelity::Bounded(.03f)).Resolve(*rule), Each(kExactly));
  EXPECT_THAT(PricedRig(Fidelity::Bounded(.08f)).Resolve(*rule), ElementsAre(kExactly, kExactly, kExactly, kSkipped));
  EXPECT_THAT(PricedRig(Fidelity::Bounded(.26f)).Resolve(*rule), ElementsAre(kExactly, kExactly, kLow, kSkipped));
  // Skipping 3 as well saves 4 for .21.
  EXPECT_THAT(PricedRig(Fidelity::Bounded(.46f)).Resolve(*rule), ElementsAre(kExactly, kExactly, kSkipped, kSkipped));
  EXPECT_THAT(PricedRig(Fidelity::Bounded(.98f)).Resolve(*rule), ElementsAre(kExactly, kSkipped, kSkipped, kSkipped));
}

TEST(PricedRule, OnlyLowersWhatWeighsMoreThanAPartOfWhatMayBeLost) {
  EXPECT_THAT(PricedRig(Fidelity::Bounded(.05f)).Resolve(*Rule("priced")), ElementsAre(kExactly, kExactly, kExactly, kLow));
  EXPECT_THAT(PricedRig(Fidelity::Bounded(1)).Resolve(*Rule("priced", "priced-skip-part=0.1")),
              ElementsAre(kLow, kLow, kLow, kSkipped));
  EXPECT_THAT(PricedRig(Fidelity::Bounded(1)).Resolve(*Rule("priced", "priced-skip-part=0")), Each(kLow));
  EXPECT_THAT(PricedRig(Fidelity::Bounded(.05f)).Resolve(*Rule("priced", "priced-skip-part=1")),
              ElementsAre(kExactly, kExactly, kExactly, kSkipped));
}

TEST(PricedRule, NothingIsLostForNothing) {
  const auto rule = Rule("priced");
  DemandRig hidden = PricedRig(Fidelity::Bounded(1));
  hidden.experts_seconds = .016;  // the reads are hidden by the layer's own computation
  EXPECT_THAT(hidden.Resolve(*rule), Each(kExactly));
  hidden.experts_seconds = .0125;  // 3.5 ms are not: skipping the lightest is enough
  EXPECT_THAT(hidden.Resolve(*rule), ElementsAre(kExactly, kExactly, kExactly, kSkipped));
  DemandRig unknown = PricedRig(Fidelity::Bounded(1));
  unknown.read_seconds = {};
  EXPECT_THAT(unknown.Resolve(*rule), Each(kExactly));
  DemandRig exact = PricedRig(Fidelity::Exact());
  EXPECT_THAT(exact.Resolve(*rule), Each(kExactly));
}

TEST(PricedRule, ALowCopyThatIsHereSavesTheWholeRead) {
  DemandRig rig = PricedRig(Fidelity::Bounded(.51f));
  rig.resident.insert({kDemandLayer, 1, 1});
  // 4 ms for .5, against 3 ms for .25 and .21: by share 8, 12, 14.3; the light one is skipped for 100.
  EXPECT_THAT(rig.Resolve(*Rule("priced", kHeavyLowered)), ElementsAre(kExactly, kLow, kLow, kSkipped));
  DemandRig alone = PricedRig(Fidelity::Bounded(.55f));
  alone.resident = {{kDemandLayer, 1, 1}, {kDemandLayer, 2, 0}, {kDemandLayer, 3, 0}};
  EXPECT_THAT(alone.Resolve(*Rule("priced")), ElementsAre(kLow, kExactly, kExactly, kSkipped));
}

// Low reads save 3 of 4 ms now, skipping and a low copy that is here all 4; not to have the record costs reuse x 4 ms later.
TEST(PricedRule, WhatWillBeUsedAgainIsReadWhole) {
  DemandRig rig = PricedRig(Fidelity::Bounded(1));
  rig.resident.insert({kDemandLayer, 1, 1});
  for (const auto& [reuse, actions] : std::vector<std::pair<double, std::vector<Action>>>{
           {0, {kLow, kLow, kLow, kSkipped}},
           {.7, {kLow, kLow, kLow, kSkipped}},
           {.8, {kLow, kExactly, kExactly, kSkipped}},
           {.99, {kLow, kExactly, kExactly, kSkipped}},
           {1, {kExactly, kExactly, kExactly, kExactly}},
       }) {
    rig.reuse = reuse;
    EXPECT_EQ(rig.Resolve(*Rule("priced", kHeavyLowered)), actions) << reuse;
  }
}

// Half of its 4 ms is left, and whether it is waited for or not it is there afterwards.
TEST(PricedRule, WhatIsOnItsWayMayBeLeftOutAndIsNotMissingLater) {
  DemandRig rig = PricedRig(Fidelity::Bounded(1));
  rig.reuse = 1;  // what is not read saves nothing
  rig.loading = {{kDemandLayer, 4, 0}};
  EXPECT_THAT(rig.Resolve(*Rule("priced")), ElementsAre(kExactly, kExactly, kExactly, kSkipped));
  rig.experts_seconds = .014;  // hides 3 reads and a half
  EXPECT_THAT(rig.Resolve(*Rule("priced")), Each(kExactly));
  rig.experts_seconds = .0139;
  EXPECT_THAT(rig.Resolve(*Rule("priced")), ElementsAre(kExactly, kExactly, kExactly, kSkipped));
}

TEST(PricedRule, NoLowCopyIsReadBehindWhatIsOnItsWay) {
  DemandRig rig = PricedRig(Fidelity::Bounded(1));
  rig.loading = {{kDemandLayer, 1, 0}};
  EXPECT_THAT(rig.Resolve(*Rule("priced", kHeavyLowered)), ElementsAre(kExactly, kLow, kLow, kSkipped));
  rig.resident = {{kDemandLayer, 1, 1}};
  EXPECT_THAT(rig.Resolve(*Rule("priced", kHeavyLowered)), ElementsAre(kLow, kLow, kLow, kSkipped)) << "one that is here";
}

TEST(PricedRule, EveryTokenOfAnExpertPays) {
  DemandRig rig = PricedRig(Fidelity::Bounded(1));
  rig.Add(SequenceId(2), {{3, .9f}, {5, .1f}}, Fidelity::Bounded(.2f));
  EXPECT_THAT(rig.Resolve(*Rule("priced", kHeavyLowered)), ElementsAre(kLow, kLow, kExactly, kSkipped, kLow));
}

TEST(PricedRule, AClassOfItsOwnForFast) {
  EXPECT_THAT(PricedRig(Fidelity::Fast()).Resolve(*Rule("priced")), ElementsAre(kExactly, kExactly, kLow, kSkipped));
  EXPECT_THAT(PricedRig(Fidelity::Fast()).Resolve(*Rule("priced", "priced-fast-mass=0.2")),
              ElementsAre(kExactly, kExactly, kExactly, kSkipped));
}

TEST(PricedRule, WithoutALowerPrecisionItMayOnlySkip) {
  DemandRig rig = PricedRig(Fidelity::Bounded(.3f));
  rig.read_seconds = {.004};
  EXPECT_THAT(rig.Resolve(*Rule("priced", "", 1)), ElementsAre(kExactly, kExactly, kSkipped, kSkipped));
}

class WidthsFile : public testing::Test {
 protected:
  absl::StatusOr<ExpertWidths> Read(const std::string& text) {
    const std::string path = folder_ / "widths.json";
    std::ofstream(path) << text;
    return ReadWidths(path, kModelHash, 3, 8, 2);
  }
  std::unique_ptr<FidelityRule> RuleOf(const std::string& text) {
    PartOptions options;
    options.SetFile(kWidthsOption, std::make_shared<const ExpertWidths>(Read(text).value()));
    return MakeFidelityRule("widths", Context(), options).value();
  }
  // Three layers of eight; expert 5 of the last one is low.
  static std::string Widths(const std::string& hash = "0000000000000abc", const std::string& last = "[0,0,0,0,0,1,0,0]") {
    return R"({"model_hash":")" + hash + R"(","precisions":[[0,0,0,0,0,0,0,0],[0,0,0,0,0,0,0,0],)" + last + "]}";
  }
  MemoryFolder folder_;
};

TEST_F(WidthsFile, EveryExpertAtItsOwn) {
  const auto rule = RuleOf(Widths());
  EXPECT_EQ(rule->PrefetchPrecision({kLayers[2], 5}, 0), 1);
  EXPECT_EQ(rule->PrefetchPrecision({kLayers[2], 4}, 0), 0);
  EXPECT_EQ(rule->PrefetchPrecision({kLayers[1], 5}, 0), 0);
  const auto first = RuleOf(Widths("0000000000000abc", "[1,1,1,1,1,1,1,1]"));
  DemandRig rig;
  rig.Add(kSession, {{5, .75f}, {2, .25f}}, Fidelity::Fast());
  EXPECT_THAT(rig.Resolve(*first), Each(kExactly));
}

TEST_F(WidthsFile, HostileFilesAreRefused) {
  EXPECT_THAT(MessageText(Refusal("widths", "")), HasSubstr("missing"));
  EXPECT_THAT(MessageText(ReadWidths("/no/such/file", kModelHash, 3, 8, 2).status()), HasSubstr("cannot read"));
  EXPECT_THAT(MessageText(Read("{").status()), HasSubstr("precisions"));
  EXPECT_THAT(MessageText(Read(Widths("00000000000000ff")).status()), HasSubstr("0000000000000abc"));
  EXPECT_THAT(MessageText(Read(Widths("0000000000000abc", "[0]")).status()), HasSubstr("precisions[2] has 1 experts"));
  EXPECT_THAT(MessageText(Read(Widths("0000000000000abc", "[0,0,0,0,0,2,0,0]")).status()),
              HasSubstr("precisions[2][5] is 2, the store's are 0 to 1"));
  EXPECT_THAT(MessageText(Read(R"({"model_hash":"0000000000000abc","precisions":[]})").status()), HasSubstr("0 layers"));
}

TEST(PartOptions, HostileTextIsRefused) {
  for (const char* text : {"x", "=1", "a=", "a=1,a=2", "a=1,,b=2"}) EXPECT_FALSE(PartOptions::Parse(text).ok()) << text;
  PartOptions options = PartOptions::Parse("hobbit-t1=0.5,hobit-t2=1").value();
  const OptionRow row{"hobbit-t1", "", "0", 0, 1};
  EXPECT_THAT(MessageText(options.SetKnown({&row})), testing::AllOf(HasSubstr("hobit-t2"), HasSubstr("known here: hobbit-t1")));
  EXPECT_EQ(options.Number(row).value(), .5);
}

TEST(TimingMeter, MeasuresReadsAndLayers) {
  TimingMeter meter({4000, 1000});
  EXPECT_TRUE(meter.prices(Phase::kDecode).read_seconds.empty());
  meter.OnRecordRead(0, 8'000'000);
  EXPECT_THAT(meter.prices(Phase::kDecode).read_seconds, ElementsAre(testing::DoubleEq(.008), testing::DoubleEq(.002)));
  meter.OnRecordRead(1, 11'000'000);
  EXPECT_THAT(meter.prices(Phase::kDecode).read_seconds, ElementsAre(testing::DoubleEq(.008), testing::DoubleEq(.003)));

  // The disk gets faster while one precision is not read: its price follows, and does not stay what it was.
  int64_t busy = 11'000'000;
  for (int i = 0; i < 1000; ++i) meter.OnRecordRead(1, busy += 500'000);
  EXPECT_THAT(meter.prices(Phase::kDecode).read_seconds,
              ElementsAre(testing::DoubleNear(.002, 1e-5), testing::DoubleNear(.0005, 1e-5)));
  meter.OnRecordRead(0, busy += 1'000'000);
  EXPECT_DOUBLE_EQ(meter.prices(Phase::kDecode).read_seconds[0], .001);

  EXPECT_EQ(meter.prices(Phase::kDecode).reuse, 1) << "nothing has left";
  for (int i = 0; i < 4000; ++i) meter.OnUsedAgain(i % 4 == 0);
  EXPECT_NEAR(meter.prices(Phase::kDecode).reuse, .25, .01);

  meter.OnLayer(0, Phase::kDecode, 1'000'000, 0);
  meter.OnExpertsDone(6'000'000, 3'000'000);  // 2 of these 5 ms were computed
  meter.OnLayer(1, Phase::kDecode, 8'000'000, 3'000'000);
  const Prices prices = meter.prices(Phase::kDecode);
  EXPECT_DOUBLE_EQ(prices.experts_seconds, .002);
  EXPECT_DOUBLE_EQ(prices.layer_seconds, .004);
  EXPECT_EQ(meter.prices(Phase::kPrefill).layer_seconds, 0);
  meter.OnLayer(0, Phase::kDecode, 5'000'000'000, 3'000'000);  // the next step: whatever was in between
  EXPECT_DOUBLE_EQ(meter.prices(Phase::kDecode).layer_seconds, .004);
}

}  // namespace rules_test
}  // namespace moed
