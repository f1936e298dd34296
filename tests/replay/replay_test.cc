#include "bench/replay/replay.h"

#include "bench/replay/belady.h"
#include "bench/replay/empty_store.h"
#include "core/expert/policies/table.h"
#include "tests/paths.h"
#include "tests/replay/trace_files.h"

namespace moed {
namespace {

constexpr ReplayTimes kTimes{.read_seconds = 0.7, .layer_seconds = 1};

std::unique_ptr<StoreReader> StoreOf(const RoutingShape& shape) {
  auto store = MakeEmptyStore(shape);
  MOED_CHECK(store.ok());
  return *std::move(store);
}

ReplayResult Play(const StoreReader& store, std::vector<const RoutingTrace*> traces, uint64_t slots, std::string_view policy_name,
                  std::string_view predictor_name = "none") {
  const bool belady = policy_name == "belady";
  const ReplaySetup setup{.store = &store,
                          .traces = traces,
                          .slots = slots,
                          .times = kTimes,
                          .policy = belady ? "" : std::string(policy_name),
                          .predictor = std::string(predictor_name)};
  const auto result = Replay(setup, belady ? MakeBeladyPolicy(traces) : nullptr);
  MOED_CHECK(result.ok());
  return *result;
}

class GptOssPart : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    TokenTexts texts;
    trace_ = new RoutingTrace(ReadRoutingTrace(SourcePath("tests/replay/data"), std::nullopt, texts).value());
    store_ = StoreOf(trace_->shape).release();
  }
  static void TearDownTestSuite() {
    delete trace_;
    delete store_;
  }
  static RoutingTrace* trace_;
  static StoreReader* store_;
};
RoutingTrace* GptOssPart::trace_ = nullptr;
StoreReader* GptOssPart::store_ = nullptr;

// Two sequences in lockstep: what both want in a step is wanted once, and the longer one goes on alone.
TEST(Replay, SequencesShareSteps) {
  const RoutingShape shape{.layers = {LayerId(0)}, .top_k = 1, .experts = 4};
  RoutingTrace trace = MakeTrace(shape, {{0}, {1}, {2}, {0}, {3}});
  trace.sequences = {{0, 3, ""}, {3, 2, ""}};
  const auto store = StoreOf(shape);
  const RoutingTrace* traces[] = {&trace};
  const auto both = Replay(
      {.store = store.get(), .traces = traces, .slots = 4, .at_once = 2, .times = kTimes, .policy = "lru", .predictor = "none"});
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->tokens, 5u);
  EXPECT_EQ(both->steps, 3u);
  EXPECT_EQ(both->experts, 4u);  // {0}, {1, 3}, {2}
  EXPECT_EQ(both->reads, 4u);
}

// A B C A B D A by hand: two slots, one layer, top-1.
TEST(Replay, CountsAndTakesTimeAsByHand) {
  const RoutingShape shape{.layers = {LayerId(0)}, .top_k = 1, .experts = 4};
  const RoutingTrace trace = MakeTrace(shape, {{0}, {1}, {2}, {0}, {1}, {3}, {0}});
  const auto store = StoreOf(shape);
  const ReplayResult lru = Play(*store, {&trace}, 2, "lru");
  EXPECT_EQ(lru.tokens, 7u);
  EXPECT_EQ(lru.lookups, 7u);
  EXPECT_EQ(lru.ready, 0u);
  EXPECT_EQ(lru.reads, 7u);
  EXPECT_NEAR(lru.seconds, 7 * 1.7, 1e-6);
  // C drives B out, B then C, D then B: A stays.
  const ReplayResult belady = Play(*store, {&trace}, 2, "belady");
  EXPECT_EQ(belady.ready, 2u);
  EXPECT_EQ(belady.reads, 5u);
  EXPECT_NEAR(belady.seconds, 7 + 5 * 0.7, 1e-6);
}

// Counted apart by a plain list, experts of a layer in the order of their weights.
TEST_F(GptOssPart, LruHitsAsOftenAsAListOfItsOwn) {
  EXPECT_EQ(Play(*store_, {trace_}, 192, "lru").ready, 33953u);
  EXPECT_EQ(Play(*store_, {trace_}, 384, "lru").ready, 50755u);
}

TEST_F(GptOssPart, NoPolicyBeatsBelady) {
  for (const uint64_t slots : {77, 192}) {
    const double bound = Play(*store_, {trace_}, slots, "belady").ready_ratio();
    for (const PolicyRow& row : Policies()) {
      if (!row.mask.empty()) continue;  // there is no router
      const ReplayResult result = Play(*store_, {trace_}, slots, row.name);
      EXPECT_LE(result.ready_ratio(), bound) << row.name;
      EXPECT_EQ(result.lookups, 597u * 96) << row.name;
      EXPECT_EQ(result.reads, result.lookups - result.ready) << row.name;  // on demand: what is not there is read
    }
  }
}

TEST_F(GptOssPart, LearnedBeatsRecencyAndFrequency) {
  const double learned = Play(*store_, {trace_, trace_}, 192, "learned").ready_ratio();
  EXPECT_GT(learned, Play(*store_, {trace_, trace_}, 192, "lru").ready_ratio() + 0.1);
  EXPECT_GT(learned, Play(*store_, {trace_, trace_}, 192, "lfu").ready_ratio());
}

TEST_F(GptOssPart, LookingAheadMakesMoreReadyAndIsFaster) {
  const ReplayResult on_demand = Play(*store_, {trace_, trace_}, 192, "learned");
  const ReplayResult ahead = Play(*store_, {trace_, trace_}, 192, "learned", "learned");
  EXPECT_GT(ahead.ready_ratio(), on_demand.ready_ratio() + 0.05);
  EXPECT_LT(ahead.seconds, 0.95 * on_demand.seconds);
  EXPECT_GT(ahead.guesses, 0u);
  EXPECT_LT(static_cast<double>(ahead.reads), 1.3 * static_cast<double>(on_demand.reads));
}

TEST_F(GptOssPart, IsTheSameEveryTime) {
  const ReplayResult first = Play(*store_, {trace_}, 192, "learned", "learned");
  const ReplayResult second = Play(*store_, {trace_}, 192, "learned", "learned");
  EXPECT_EQ(first.ready, second.ready);
  EXPECT_EQ(first.reads, second.reads);
  EXPECT_EQ(first.seconds, second.seconds);
}

// Three slots where a layer wants four.
TEST_F(GptOssPart, ACacheSmallerThanALayerStillServes) {
  RoutingTrace few = *trace_;
  few.sequences = {{0, 20, ""}};
  const ReplayResult result = Play(*store_, {&few}, 3, "lru");
  EXPECT_EQ(result.lookups, 20u * 96);
  EXPECT_EQ(result.ready, 0u);
}

}  // namespace
}  // namespace moed
