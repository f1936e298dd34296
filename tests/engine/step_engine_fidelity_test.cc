// What requests may lose: from the request or the daemon's preset to the model, from the counters to the end, across a session.
#include <gtest/gtest.h>

#include "tests/engine/engine_harness.h"

namespace moed {
namespace step_engine_fidelity_test {

EngineRequest Ask(std::optional<Fidelity> fidelity, const std::string& session = "") {
  EngineRequest request = GreedyRequest("hello", 3);
  request.fidelity = fidelity;
  request.session_id = session;
  return request;
}

// What the chunks of a request's steps said.
std::set<Fidelity> Seen(Harness& harness, EngineRequest request) {
  std::set<Fidelity> seen;
  harness.model->on_forward = [&](std::span<SequenceChunk> chunks) {
    for (const SequenceChunk& chunk : chunks) seen.insert(chunk.fidelity);
  };
  harness.Submit(std::move(request));
  harness.RunAll();
  harness.model->on_forward = nullptr;
  return seen;
}

TEST(StepEngineFidelityTest, ARequestSaysWhatItMayLoseOrThePresetDoes) {
  for (const Fidelity own : {Fidelity::Exact(), Fidelity::Fast()}) {
    HarnessOptions options;
    options.fidelity = own;
    Harness harness(options);
    EXPECT_EQ(Seen(harness, Ask(std::nullopt)), std::set<Fidelity>{own});
    for (const Fidelity asked : {Fidelity::Exact(), Fidelity::Bounded(.25f), Fidelity::Bounded(1), Fidelity::Fast()}) {
      EXPECT_EQ(Seen(harness, Ask(asked)), std::set<Fidelity>{asked});
    }
  }
}

TEST(StepEngineFidelityTest, EveryRequestOfAStepKeepsItsOwn) {
  Harness harness;
  std::map<SequenceId, std::set<Fidelity>> seen;
  harness.model->on_forward = [&](std::span<SequenceChunk> chunks) {
    for (const SequenceChunk& chunk : chunks) seen[chunk.sequence].insert(chunk.fidelity);
  };
  for (const Fidelity asked : {Fidelity::Exact(), Fidelity::Bounded(.5f), Fidelity::Fast()}) harness.Submit(Ask(asked));
  harness.RunAll();
  std::set<std::set<Fidelity>> each;
  for (const auto& [session, values] : seen) each.insert(values);
  EXPECT_EQ(each, (std::set<std::set<Fidelity>>{{Fidelity::Exact()}, {Fidelity::Bounded(.5f)}, {Fidelity::Fast()}}));
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
    const auto recorder = harness.Submit(Ask(Fidelity::Fast(), "s"));
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
      if (loses && !chunk.fidelity.exact()) ++harness.provider.lost[chunk.sequence].lowered;
    }
  };
  const auto cached = [&](Fidelity fidelity) {
    const auto recorder = harness.Submit(Ask(fidelity, "s"));
    harness.RunAll();
    EXPECT_TRUE(recorder->finish && recorder->finish->status.ok());
    return recorder->cached_tokens;
  };
  EXPECT_EQ(cached(Fidelity::Bounded(.5f)), 0);
  EXPECT_EQ(cached(Fidelity::Bounded(.5f)), 7);  // five of the prompt, two of the answer: the last one is not computed yet
  EXPECT_EQ(cached(Fidelity::Bounded(1)), 15);   // less strict: what is there will do
  EXPECT_EQ(cached(Fidelity::Bounded(.5f)), 0);  // computed at 1
  EXPECT_EQ(cached(Fidelity::Exact()), 0);
  loses = false;
  EXPECT_EQ(cached(Fidelity::Fast()), 39);   // nothing was lost at the exact request
  EXPECT_EQ(cached(Fidelity::Exact()), 47);  // nor at this one, though it might have been
  harness.ExpectClean();
}

TEST(StepEngineFidelityTest, ProductsOfHalvesAreToldAndStayFromStricterRequests) {
  HarnessOptions options;
  options.engine.fast_matmul = true;
  Harness harness(options);
  harness.model->on_forward = [&](std::span<SequenceChunk> chunks) {
    for (SequenceChunk& chunk : chunks) chunk.fast_matmul = chunk.fidelity.fast_matmul() && chunk.tokens.size() > 1;
  };
  const auto asked = [&](Fidelity fidelity, const std::string& session) {
    const auto recorder = harness.Submit(Ask(fidelity, session));
    harness.RunAll();
    EXPECT_TRUE(recorder->finish && recorder->finish->status.ok());
    return std::pair(recorder->cached_tokens, recorder->finish->fast_matmul_tokens);
  };
  using Told = std::pair<int, uint64_t>;  // cached tokens, tokens by products of halves
  EXPECT_EQ(asked(Fidelity::FastMatmul(), "s"), (Told{0, 5}));
  EXPECT_EQ(asked(Fidelity::Fast(), "s"), (Told{7, 6}));
  EXPECT_EQ(asked(Fidelity::FastMatmul(), "s"), (Told{15, 6}));
  EXPECT_EQ(asked(Fidelity::Exact(), "s"), (Told{0, 0}));
  EXPECT_EQ(asked(Fidelity::FastMatmul(), "s"), (Told{31, 6}));
  EXPECT_EQ(harness.engine->Stats().fast_matmul_tokens, 23u);
  harness.ExpectClean();
}

// An answer is not exact that goes on from what was computed with a loss, though its own steps lose nothing.
TEST(StepEngineFidelityTest, TheEndTellsOfLossesThatWereTakenOver) {
  Harness harness;
  harness.model->on_forward = [&](std::span<SequenceChunk> chunks) {
    for (const SequenceChunk& chunk : chunks) {
      if (!chunk.fidelity.exact()) ++harness.provider.lost[chunk.sequence].lowered;
    }
  };
  const auto told = [&](char letter, Fidelity fidelity, const std::string& session = "") {
    EngineRequest request = GreedyRequest(std::string(40, letter), 3);
    request.fidelity = fidelity;
    request.session_id = session;
    const auto recorder = harness.Submit(std::move(request));
    harness.RunAll();
    EXPECT_TRUE(recorder->finish && recorder->finish->status.ok());
    return std::pair(recorder->cached_tokens, recorder->finish->lossy_cached_tokens);
  };
  using Told = std::pair<int, int>;  // cached tokens, of which so many had lost something
  EXPECT_EQ(told('x', Fidelity::Exact()), (Told{0, 0}));
  EXPECT_EQ(told('x', Fidelity::Exact()), (Told{39, 0}));
  EXPECT_EQ(told('x', Fidelity::Fast()), (Told{39, 0})) << "what an exact request has computed";
  EXPECT_EQ(told('y', Fidelity::Fast()), (Told{0, 0}));
  EXPECT_EQ(told('y', Fidelity::Fast()), (Told{39, 39}));
  EXPECT_EQ(told('y', Fidelity::Exact()), (Told{0, 0}));
  EXPECT_EQ(told('z', Fidelity::Fast(), "s"), (Told{0, 0}));
  EXPECT_EQ(told('z', Fidelity::Fast(), "s"), (Told{42, 42}));
  harness.ExpectClean();
}

TEST(StepEngineFidelityTest, WhoGaveWayTellsWhatItGoesOnWith) {
  HarnessOptions options;
  options.engine.max_running = 2;
  Harness harness(options);
  harness.model->on_forward = [&](std::span<SequenceChunk> chunks) {
    for (const SequenceChunk& chunk : chunks) ++harness.provider.lost[chunk.sequence].lowered;
  };
  std::vector<std::shared_ptr<Recorder>> answers;
  for (const char* tenant : {"many", "many", "single"}) {
    EngineRequest request = GreedyRequest(std::string("hello ") + tenant, 8);
    request.fidelity = Fidelity::Fast();
    request.tenant = tenant;
    answers.push_back(harness.Submit(std::move(request)));
    harness.engine->RunOneStep();
  }
  harness.RunAll();
  ASSERT_EQ(answers[1]->finish->preemptions, 1);
  EXPECT_GT(answers[1]->finish->lossy_cached_tokens, 0);
  EXPECT_EQ(answers[2]->finish->lossy_cached_tokens, 0);
}

TEST(StepEngineFidelityTest, OutOfRangeIsRefused) {
  Harness harness;
  for (const float wrong : {-.1f, 1.1f, std::nanf("")}) {
    const absl::Status status = harness.SubmitError(Ask(Fidelity::Bounded(wrong)));
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << wrong;
    EXPECT_NE(status.message().find("fidelity.max_gate_mass"), absl::string_view::npos);
  }
}

}  // namespace step_engine_fidelity_test
}  // namespace moed
