// What requests may lose: from the request or the daemon's preset to the model, from the counters to the end, across a session.
#include <gtest/gtest.h>

#include "tests/engine/engine_harness.h"

namespace moed {
namespace {

EngineRequest Ask(std::optional<float> may_lose, const std::string& session = "") {
  EngineRequest request = GreedyRequest("hello", 3);
  request.may_lose = may_lose;
  request.session_id = session;
  return request;
}

// What the chunks of a request's steps said.
std::set<float> Seen(Harness& harness, EngineRequest request) {
  std::set<float> seen;
  harness.model->on_forward = [&](std::span<SequenceChunk> chunks) {
    for (const SequenceChunk& chunk : chunks) seen.insert(chunk.may_lose);
  };
  harness.Submit(std::move(request));
  harness.RunAll();
  harness.model->on_forward = nullptr;
  return seen;
}

TEST(StepEngineFidelityTest, ARequestSaysWhatItMayLoseOrThePresetDoes) {
  for (const float own : {kLoseNothing, kLoseAnything}) {
    HarnessOptions options;
    options.may_lose = own;
    Harness harness(options);
    EXPECT_EQ(Seen(harness, Ask(std::nullopt)), std::set<float>{own});
    for (const float asked : {kLoseNothing, .25f, 1.0f, kLoseAnything}) {
      EXPECT_EQ(Seen(harness, Ask(asked)), std::set<float>{asked});
    }
  }
}

TEST(StepEngineFidelityTest, EveryRequestOfAStepKeepsItsOwn) {
  Harness harness;
  std::map<SequenceId, std::set<float>> seen;
  harness.model->on_forward = [&](std::span<SequenceChunk> chunks) {
    for (const SequenceChunk& chunk : chunks) seen[chunk.sequence].insert(chunk.may_lose);
  };
  for (const float asked : {kLoseNothing, .5f, kLoseAnything}) harness.Submit(Ask(asked));
  harness.RunAll();
  std::set<std::set<float>> each;
  for (const auto& [session, values] : seen) each.insert(values);
  EXPECT_EQ(each, (std::set<std::set<float>>{{kLoseNothing}, {.5f}, {kLoseAnything}}));
}

TEST(StepEngineFidelityTest, TheEndTellsWhatThisRequestLost) {
  Harness harness;
  harness.model->on_forward = [&](std::span<SequenceChunk> chunks) {
    SequenceCounters& counters = harness.provider.lost[chunks[0].sequence];
    counters.lowered += 5;
    counters.skipped += 3;
    counters.masked += 2;
    counters.gate_mass_lost += .5;
    counters.routed_tokens += 4;
  };
  for (int turn = 0; turn < 2; ++turn) {  // of the second request alone
    const auto recorder = harness.Submit(Ask(kLoseAnything, "s"));
    harness.RunAll();
    ASSERT_TRUE(recorder->finish && recorder->finish->status.ok());
    const uint64_t steps = recorder->finish->experts_lowered / 5;
    EXPECT_GE(steps, 3u);
    EXPECT_EQ(recorder->finish->experts_skipped, 3 * steps);
    EXPECT_EQ(recorder->finish->experts_masked, 2 * steps);
    EXPECT_DOUBLE_EQ(recorder->finish->gate_mass_lost, .125);
  }
}

TEST(StepEngineFidelityTest, AConversationIsComputedAgainForAStricterRequest) {
  Harness harness;
  bool loses = true;
  harness.model->on_forward = [&](std::span<SequenceChunk> chunks) {
    for (const SequenceChunk& chunk : chunks) {
      if (loses && chunk.may_lose > 0) ++harness.provider.lost[chunk.sequence].lowered;
    }
  };
  const auto cached = [&](float may_lose) {
    const auto recorder = harness.Submit(Ask(may_lose, "s"));
    harness.RunAll();
    EXPECT_TRUE(recorder->finish && recorder->finish->status.ok());
    return recorder->cached_tokens;
  };
  EXPECT_EQ(cached(.5f), 0);
  EXPECT_EQ(cached(.5f), 7);  // five of the prompt, two of the answer: the last one is not computed yet
  EXPECT_EQ(cached(1), 15);   // less strict: what is there will do
  EXPECT_EQ(cached(.5f), 0);  // computed at 1
  EXPECT_EQ(cached(kLoseNothing), 0);
  loses = false;
  EXPECT_EQ(cached(kLoseAnything), 39);  // nothing was lost at the exact request
  EXPECT_EQ(cached(kLoseNothing), 47);   // nor at this one, though it might have been
  harness.ExpectClean();
}

TEST(StepEngineFidelityTest, OutOfRangeIsRefused) {
  Harness harness;
  for (const float wrong : {-.1f, 1.1f, std::nanf("")}) {
    const absl::Status status = harness.SubmitError(Ask(wrong));
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << wrong;
    EXPECT_NE(status.message().find("fidelity.max_gate_mass"), absl::string_view::npos);
  }
}

}  // namespace
}  // namespace moed
