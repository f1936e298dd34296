// Models whose sequences need slots share prefixes, too: a request goes on at a checkpoint of another one, with the same answer.
// The harness's model holds window and state against the tokens in the pages.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/engine/prefix_requests.h"

namespace moed {
namespace step_engine_checkpoint_test {

struct Layers {
  std::string name;
  int window;
  bool state;
};

HarnessOptions OptionsOf(const Layers& layers, int slots = 8) {
  HarnessOptions options;
  options.window = layers.window;
  options.state = layers.state;
  options.slots = slots;
  return options;
}

class StepEngineCheckpointTest : public testing::TestWithParam<Layers> {};

TEST_P(StepEngineCheckpointTest, APromptOfSeveralStepsLeavesItsLastWholeStep) {
  Harness harness(OptionsOf(GetParam()));
  std::mt19937_64 random(1);
  const std::vector<TokenId> shared = RandomLetters(random, 50);
  EXPECT_EQ(Serve(harness, Ask(Joined(shared, RandomLetters(random, 5)), 3))->cached_tokens, 0);
  const int before = harness.model->computed_tokens;
  const auto second = Serve(harness, Ask(Joined(shared, Bytes("other")), 3));
  EXPECT_EQ(second->cached_tokens, 48) << "steps of 16 tokens";
  EXPECT_EQ(harness.model->computed_tokens - before, 55 + 2 - 48);
  const EngineStats stats = harness.engine->Stats();
  EXPECT_EQ(stats.prefix_queries, 110u);
  EXPECT_EQ(stats.prefix_hits, 48u);
  EXPECT_EQ(stats.cached_tokens, 48u);
  EXPECT_GT(stats.checkpoints, 0);
  harness.ExpectClean();
}

// The end of the prompt is more than a page behind it.
TEST_P(StepEngineCheckpointTest, TheLastStepsBeginningStaysBesideItsEnd) {
  HarnessOptions options = OptionsOf(GetParam());
  options.engine.max_step_tokens = 32;
  Harness harness(options);
  std::mt19937_64 random(9);
  const std::vector<TokenId> prompt = RandomLetters(random, 60);
  Serve(harness, Ask(prompt, 3));
  EXPECT_EQ(Serve(harness, Ask(Joined({prompt.begin(), prompt.begin() + 40}, Bytes("x")), 3))->cached_tokens, 32);
  EXPECT_EQ(Serve(harness, Ask(Joined(prompt, Bytes("x")), 3))->cached_tokens, 60);
  harness.ExpectClean();
}

// Its own step ends a little before.
TEST_P(StepEngineCheckpointTest, WherePromptsPartThereIsACheckpointWhateverIsNear) {
  HarnessOptions options = OptionsOf(GetParam());
  options.engine.max_step_tokens = 32;
  options.engine.max_context = 200;
  Harness harness(options);
  std::mt19937_64 random(10);
  const std::vector<TokenId> shared = RandomLetters(random, 40);
  Serve(harness, Ask(Joined(shared, RandomLetters(random, 60)), 3), {}, 200);
  EXPECT_EQ(Serve(harness, Ask(Joined(shared, Bytes("x")), 3), {}, 200)->cached_tokens, 0);
  EXPECT_EQ(Serve(harness, Ask(Joined(shared, Bytes("y")), 3), {}, 200)->cached_tokens, 40);
  harness.ExpectClean();
}

// In one step, so that nothing is kept within it before somebody parts from it there.
TEST_P(StepEngineCheckpointTest, WhereTheSecondPartsTheThirdGoesOn) {
  HarnessOptions options = OptionsOf(GetParam());
  options.engine.max_step_tokens = 96;
  Harness harness(options);
  std::mt19937_64 random(2);
  const std::vector<TokenId> shared = RandomLetters(random, 53);
  Serve(harness, Ask(Joined(shared, Bytes("one")), 3));
  const int before = harness.model->computed_tokens;
  EXPECT_EQ(Serve(harness, Ask(Joined(shared, Bytes("two")), 3))->cached_tokens, 0);
  EXPECT_EQ(harness.model->computed_tokens - before, 58);
  EXPECT_EQ(Serve(harness, Ask(Joined(shared, Bytes("and three")), 3))->cached_tokens, 53);
  EXPECT_EQ(Serve(harness, Ask(Joined(shared, Bytes("4")), 3))->cached_tokens, 53) << "it is there for all";
  harness.ExpectClean();
}

TEST_P(StepEngineCheckpointTest, AStatelessClientPaysForNewTokensOnly) {
  HarnessOptions options = OptionsOf(GetParam());
  options.engine.max_context = 512;
  Harness stateless(options), session(options);
  std::mt19937_64 random(3);
  std::vector<TokenId> history;
  for (int turn = 0; turn < 10; ++turn) {
    const std::vector<TokenId> said = RandomLetters(random, 1 + random() % 30);
    const int before_stateless = stateless.model->computed_tokens, before_session = session.model->computed_tokens;
    auto answer = Serve(stateless, Ask(Joined(history, said), 12), {}, 512);
    auto same = Serve(session, Ask(said, 12, "s"), history, 512);
    EXPECT_EQ(answer->tokens(), same->tokens());
    EXPECT_EQ(stateless.model->computed_tokens - before_stateless, session.model->computed_tokens - before_session);
    EXPECT_EQ(answer->cached_tokens, same->cached_tokens);
    history = Joined(Joined(history, said), answer->tokens());
  }
  stateless.ExpectClean();
  session.ExpectClean();
}

enum class End { kCancelledBetweenSteps, kFailedInAStep };

// A turn that ends without an answer: the next one begins where that one began, and the same one, asked again, where it ended.
TEST_P(StepEngineCheckpointTest, ATurnThatFailedCostsItsSessionNothing) {
  for (const End end : {End::kCancelledBetweenSteps, End::kFailedInAStep}) {
    HarnessOptions options = OptionsOf(GetParam());
    options.engine.max_context = 400;
    Harness harness(options);
    std::mt19937_64 random(4);
    const std::vector<TokenId> said = RandomLetters(random, 60), more = RandomLetters(random, 100);
    const std::vector<TokenId> history = Joined(said, Serve(harness, Ask(said, 6, "s"), {}, 400)->tokens());
    const EngineRequest lost = Ask(more, 60, "s");
    auto recorder = harness.Submit(lost);
    while (recorder->infos.size() < 50) harness.engine->RunOneStep();
    if (end == End::kFailedInAStep) {
      harness.model->fails = [](const SequenceChunk&) { return absl::DataLossError("bad expert"); };
      harness.engine->RunOneStep();
      harness.model->fails = nullptr;
    } else {
      harness.engine->Cancel(harness.ids[lost.name], absl::CancelledError("no"));
    }
    harness.RunAll();
    EXPECT_FALSE(recorder->finish->status.ok());
    EXPECT_EQ(Serve(harness, Ask(Bytes("go on"), 3, "s"), history, 400)->cached_tokens, 65) << "all but the last token's";
    if (end == End::kCancelledBetweenSteps) {
      EXPECT_GE(Serve(harness, Ask(Joined(history, more), 3), {}, 400)->cached_tokens, 160);
    }
    harness.ExpectClean();
  }
}

TEST_P(StepEngineCheckpointTest, WithoutThePrefixCacheNothingIsKept) {
  HarnessOptions options = OptionsOf(GetParam());
  options.engine.prefix_cache = false;
  Harness harness(options);
  std::mt19937_64 random(5);
  const std::vector<TokenId> prompt = RandomLetters(random, 70);
  for (int turn = 0; turn < 3; ++turn) EXPECT_EQ(Serve(harness, Ask(prompt, 3))->cached_tokens, 0);
  EXPECT_EQ(harness.engine->Stats().checkpoints, 0);
  harness.ExpectClean();
}

TEST_P(StepEngineCheckpointTest, ALooserStateIsNotUsedForAStricterRequest) {
  Harness harness(OptionsOf(GetParam()));
  harness.model->on_forward = [&](std::span<SequenceChunk> chunks) {
    for (const SequenceChunk& chunk : chunks) {
      if (!chunk.fidelity.exact()) ++harness.provider.lost[chunk.sequence].lowered;
    }
  };
  std::mt19937_64 random(6);
  const std::vector<TokenId> prompt = RandomLetters(random, 70);
  const auto cached = [&](Fidelity fidelity) {
    EngineRequest request = Ask(prompt, 2);
    request.fidelity = fidelity;
    return Serve(harness, request)->cached_tokens;
  };
  EXPECT_EQ(cached(Fidelity::Bounded(.5f)), 0);
  EXPECT_EQ(cached(Fidelity::Bounded(.25f)), 0);
  EXPECT_GE(cached(Fidelity::Bounded(.5f)), 48);
  EXPECT_EQ(cached(Fidelity::Exact()), 0);
  EXPECT_GE(cached(Fidelity::Bounded(.25f)), 48);
  EXPECT_GE(cached(Fidelity::Exact()), 48);
  harness.ExpectClean();
}

TEST_P(StepEngineCheckpointTest, TheStateThatWasUsedLongestAgoGoesFirst) {
  Harness harness(OptionsOf(GetParam(), 3));
  std::mt19937_64 random(7);
  const std::vector<TokenId> often = RandomLetters(random, 40);
  Serve(harness, Ask(Joined(often, Bytes("1")), 3));
  for (int i = 0; i < 4; ++i) {
    EXPECT_GE(Serve(harness, Ask(Joined(often, RandomLetters(random, 3)), 3))->cached_tokens, 32);
    Serve(harness, Ask(RandomLetters(random, 15), 1));  // no page is full: only what its end leaves
  }
  for (int i = 0; i < 3; ++i) Serve(harness, Ask(RandomLetters(random, 40), 3));
  EXPECT_EQ(Serve(harness, Ask(Joined(often, Bytes("2")), 3))->cached_tokens, 0);
  harness.ExpectClean();
}

TEST_P(StepEngineCheckpointTest, ADeletedConversationIsNotRemembered) {
  Harness harness(OptionsOf(GetParam()));
  std::mt19937_64 random(8);
  const std::vector<TokenId> said = RandomLetters(random, 70);
  Serve(harness, Ask(said, 4, "s"));
  ASSERT_TRUE(harness.engine->DeleteSession("s").ok());
  EXPECT_EQ(Serve(harness, Ask(said, 4))->cached_tokens, 0);
  harness.ExpectClean();
}

TEST_P(StepEngineCheckpointTest, EveryAnswerIsTheNaiveLoopsWhateverIsShared) {
  for (const int pages : {6, 14, 40}) {
    for (const int step_tokens : {4, 16, 64}) {
      for (const int slots : {1, 3, 12}) {
        SCOPED_TRACE(testing::Message() << pages << " pages, steps of " << step_tokens << ", " << slots << " slots");
        HarnessOptions options = OptionsOf(GetParam(), slots);
        options.pages = pages;
        options.engine.max_step_tokens = step_tokens;
        Harness harness(options);
        const Soaked soaked = Soak(harness, static_cast<uint64_t>(pages * 1000 + step_tokens * 10 + slots), 25);
        if (slots > 1 && pages > 6) {
          EXPECT_GT(soaked.cached, slots == 3 ? 20 : 60);
        }
        EXPECT_GT(soaked.cut, 0);
        harness.ExpectClean();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, StepEngineCheckpointTest,
                         testing::Values(Layers{"window", 5, false}, Layers{"state", 0, true}, Layers{"both", 33, true}),
                         [](const auto& info) { return info.param.name; });

}  // namespace step_engine_checkpoint_test
}  // namespace moed
