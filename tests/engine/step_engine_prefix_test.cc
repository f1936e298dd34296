// The prefix cache: requests begin with what others have computed, and answer as if they had computed it themselves. The
// harness's model reads what it says out of the pages, so that a page of somebody else's tokens changes the answer.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/engine/engine_harness.h"

namespace moed {
namespace {

std::vector<TokenId> Joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<TokenId> Letters(std::mt19937_64& random, size_t count) {
  std::vector<TokenId> letters;
  for (size_t i = 0; i < count; ++i) letters.push_back(TokenId('a' + static_cast<int>(random() % 8)));
  return letters;
}

EngineRequest Ask(std::vector<TokenId> prompt, int new_tokens, const std::string& session = "") {
  EngineRequest request = GreedyRequest("", new_tokens);
  request.prompt = std::move(prompt);
  request.session_id = session;
  return request;
}

// Runs it alone, holds it against the naive loop. `history`: of its session.
std::shared_ptr<Recorder> Serve(Harness& harness, const EngineRequest& request, const std::vector<TokenId>& history = {}) {
  auto recorder = harness.Submit(request);
  harness.RunAll();
  ExpectAnswer(*recorder, Reference(request, history));
  return recorder;
}

TEST(StepEnginePrefixTest, WhatAnotherRequestComputedIsNotComputedAgain) {
  Harness harness;
  std::mt19937_64 random(1);
  const std::vector<TokenId> shared = Letters(random, 40), other = Letters(random, 10);
  Serve(harness, Ask(Joined(shared, Letters(random, 5)), 3));
  const int before = harness.model->computed_tokens;
  const auto second = Serve(harness, Ask(Joined(shared, other), 3));
  EXPECT_EQ(second->prompt_tokens, 50);
  EXPECT_GE(second->cached_tokens, 40) << "two full pages and the beginning of the third";
  EXPECT_EQ(harness.model->computed_tokens - before, 50 + 2 - second->cached_tokens);
  const EngineStats stats = harness.engine->Stats();
  EXPECT_EQ(stats.prefix_queries, 45u + 50);
  EXPECT_EQ(stats.prefix_hits, static_cast<uint64_t>(second->cached_tokens));
  EXPECT_EQ(stats.cached_tokens, stats.prefix_hits);
  EXPECT_EQ(stats.recomputed_tokens, 0u);
  EXPECT_EQ(stats.kv_pages_used, 0);
  EXPECT_GT(stats.kv_pages_remembered, 0);
  EXPECT_EQ(Serve(harness, Ask(shared, 3))->cached_tokens, 32) << "the page that was not full went on with the second";
  EXPECT_EQ(Serve(harness, Ask(shared, 3))->cached_tokens, 39) << "the last token is computed always";
  harness.ExpectClean();
}

TEST(StepEnginePrefixTest, SwitchedOffOrScoredNothingIsFound) {
  HarnessOptions options;
  options.engine.prefix_cache = false;
  Harness off(options), on;
  std::mt19937_64 random(2);
  const std::vector<TokenId> prompt = Letters(random, 50);
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_EQ(Serve(off, Ask(prompt, 3))->cached_tokens, 0);
    EngineRequest score = Ask(prompt, 3);
    score.kind = RequestKind::kScore;
    auto recorder = on.Submit(score);
    on.RunAll();
    EXPECT_EQ(recorder->cached_tokens, 0);
    EXPECT_EQ(recorder->finish->prompt_logprobs.size(), 49u);
  }
  EXPECT_EQ(off.engine->Stats().prefix_queries, 0u);
  EXPECT_EQ(on.engine->Stats().kv_pages_remembered, 0);
  EXPECT_EQ(on.engine->Stats().prefix_queries, 0u);
  off.ExpectClean();
  on.ExpectClean();
}

// The promise to clients without sessions: every turn costs what a session's turn costs.
TEST(StepEnginePrefixTest, AStatelessClientPaysForNewTokensOnly) {
  HarnessOptions options;
  options.engine.max_context = 512;
  Harness stateless(options), session(options);
  std::mt19937_64 random(3);
  std::vector<TokenId> history;
  for (int turn = 0; turn < 10; ++turn) {
    const std::vector<TokenId> said = Letters(random, 1 + random() % 30);
    const int before_stateless = stateless.model->computed_tokens, before_session = session.model->computed_tokens;
    EngineRequest whole = Ask(Joined(history, said), 12);
    auto answer = stateless.Submit(whole);
    stateless.RunAll();
    ExpectAnswer(*answer, Reference(whole, {}, 512));
    auto same = session.Submit(Ask(said, 12, "s"));
    session.RunAll();
    EXPECT_EQ(answer->tokens(), same->tokens());
    EXPECT_EQ(stateless.model->computed_tokens - before_stateless, session.model->computed_tokens - before_session);
    EXPECT_EQ(answer->prompt_tokens, same->prompt_tokens);
    EXPECT_EQ(answer->cached_tokens, same->cached_tokens);
    history = Joined(Joined(history, said), answer->tokens());
  }
  stateless.ExpectClean();
  session.ExpectClean();
}

TEST(StepEnginePrefixTest, SharedPagesAreHeldOnce) {
  HarnessOptions options;
  options.pages = 12;
  Harness harness(options);
  std::mt19937_64 random(4);
  const std::vector<TokenId> shared = Letters(random, 80);  // five pages
  Serve(harness, Ask(shared, 2));
  std::vector<std::pair<EngineRequest, std::shared_ptr<Recorder>>> together;
  for (int i = 0; i < 4; ++i) {
    const EngineRequest request = Ask(Joined(shared, Letters(random, 3)), 6);
    together.emplace_back(request, harness.Submit(request));
  }
  int most_running = 0;
  harness.model->on_forward = [&](std::span<SequenceChunk> chunks) {
    most_running = std::max(most_running, static_cast<int>(chunks.size()));
  };
  harness.RunAll();
  EXPECT_EQ(most_running, 4) << "24 pages, did each have its own";
  for (const auto& [request, recorder] : together) {
    ExpectAnswer(*recorder, Reference(request));
    EXPECT_GE(recorder->cached_tokens, 80);
    EXPECT_EQ(recorder->finish->preemptions, 0);
  }
  harness.ExpectClean();
}

TEST(StepEnginePrefixTest, ALooserComputationIsNotUsedForAStricterRequest) {
  Harness harness;
  bool loses = true;
  harness.model->on_forward = [&](std::span<SequenceChunk> chunks) {
    for (const SequenceChunk& chunk : chunks) {
      if (loses && !chunk.fidelity.exact()) ++harness.provider.lost[chunk.sequence].lowered;
    }
  };
  std::mt19937_64 random(5);
  const std::vector<TokenId> prompt = Letters(random, 40);
  const auto cached = [&](Fidelity fidelity) {
    EngineRequest request = Ask(prompt, 2);
    request.fidelity = fidelity;
    return Serve(harness, request)->cached_tokens;
  };
  EXPECT_EQ(cached(Fidelity::Bounded(.5f)), 0);
  EXPECT_EQ(cached(Fidelity::Bounded(.25f)), 0);
  EXPECT_EQ(cached(Fidelity::Bounded(.25f)), 39) << "the stricter one took its place";
  EXPECT_EQ(cached(Fidelity::Fast()), 39);
  EXPECT_EQ(cached(Fidelity::Exact()), 0);
  EXPECT_EQ(cached(Fidelity::Exact()), 39);
  EXPECT_EQ(cached(Fidelity::Bounded(.25f)), 39);
  EXPECT_EQ(cached(Fidelity::Exact()), 32) << "the full pages stayed exact, their end was computed once more, at .25";
  loses = false;
  const std::vector<TokenId> another = Letters(random, 40);
  EngineRequest request = Ask(another, 2);
  request.fidelity = Fidelity::Fast();
  Serve(harness, request);
  request.fidelity = Fidelity::Exact();
  request.name += " again";
  EXPECT_EQ(Serve(harness, request)->cached_tokens, 39) << "nothing was lost";
  harness.ExpectClean();
}

TEST(StepEnginePrefixTest, WhatNobodyUsesGoesBeforeAnySession) {
  HarnessOptions options;
  options.pages = 8;
  Harness harness(options);
  std::mt19937_64 random(6);
  const std::vector<TokenId> said = Letters(random, 40), old = Letters(random, 30), recent = Letters(random, 30);
  const std::vector<TokenId> history = Joined(said, Serve(harness, Ask(said, 4, "s"))->tokens());
  Serve(harness, Ask(old, 2));
  Serve(harness, Ask(recent, 2));
  Serve(harness, Ask(Letters(random, 30), 2));  // of 8 pages 3 are the session's, 4 are remembered
  EXPECT_EQ(Serve(harness, Ask(old, 2))->cached_tokens, 16) << "of the oldest, the end first";
  EXPECT_EQ(Serve(harness, Ask(Letters(random, 5), 2, "s"), history)->cached_tokens, 43);
  harness.ExpectClean();
}

TEST(StepEnginePrefixTest, ADeletedConversationIsNotRemembered) {
  Harness harness;
  std::mt19937_64 random(7);
  const std::vector<TokenId> said = Letters(random, 50);
  Serve(harness, Ask(said, 4, "s"));
  ASSERT_TRUE(harness.engine->DeleteSession("s").ok());
  EXPECT_EQ(Serve(harness, Ask(said, 4))->cached_tokens, 0);
  harness.ExpectClean();
}

// Conversations with and without sessions that have much in common, with few pages, cancelled and failing ones among them.
TEST(StepEnginePrefixTest, EveryAnswerIsTheNaiveLoopsWhateverIsShared) {
  for (const int pages : {6, 9, 14, 40}) {
    for (const int step_tokens : {4, 16, 64}) {
      HarnessOptions options;
      options.pages = pages;
      options.engine.max_step_tokens = step_tokens;
      Harness harness(options);
      std::mt19937_64 random(static_cast<uint64_t>(pages * 100 + step_tokens));
      std::vector<std::vector<TokenId>> histories{Letters(random, 20), Letters(random, 33)};
      int cached = 0, cut = 0;
      for (int round = 0; round < 40; ++round) {
        std::vector<std::pair<EngineRequest, std::shared_ptr<Recorder>>> turns;
        for (int i = 0; i < 5; ++i) {
          std::vector<TokenId> prompt = histories[random() % histories.size()];
          prompt.resize(1 + random() % prompt.size());
          const std::string session = random() % 3 == 0 ? std::string(1, static_cast<char>('p' + i)) : "";
          const int new_tokens = 1 + static_cast<int>(random() % 12);  // before the letters, whatever the compiler
          EngineRequest request = Ask(Joined(prompt, Letters(random, random() % 8)), new_tokens, session);
          request.whole_prompt = true;
          turns.emplace_back(request, harness.Submit(request));
        }
        const std::string victim = turns[random() % turns.size()].first.name;
        const bool cancels = random() % 2 == 0;
        for (uint64_t step = random() % 6; step-- > 0;) harness.engine->RunOneStep();
        if (cancels && harness.engine->Cancel(harness.ids[victim], absl::CancelledError("no"))) ++cut;
        harness.RunAll();
        for (const auto& [request, recorder] : turns) {
          ASSERT_TRUE(recorder->finish);
          if (!recorder->finish->status.ok()) continue;
          ExpectAnswer(*recorder, Reference(request));
          cached += recorder->cached_tokens;
          EXPECT_LE(recorder->cached_tokens, recorder->prompt_tokens);
          std::vector<TokenId> history = Joined(request.prompt, recorder->tokens());
          if (history.size() > 80) history.resize(80);
          if (histories.size() < 6) histories.push_back(history);
          histories[random() % histories.size()] = history;
        }
      }
      EXPECT_GT(cached, 400) << pages << " pages";
      EXPECT_GT(cut, 0);
      harness.ExpectClean();
    }
  }
}

}  // namespace
}  // namespace moed
