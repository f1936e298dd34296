// The prefix cache: requests begin with what others have computed, and answer as if they had computed it themselves. The
// harness's model reads what it says out of the pages, so that a page of somebody else's tokens changes the answer.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>

#include "tests/engine/prefix_requests.h"

namespace moed {
namespace step_engine_prefix_test {

TEST(StepEnginePrefixTest, WhatAnotherRequestComputedIsNotComputedAgain) {
  Harness harness;
  std::mt19937_64 random(1);
  const std::vector<TokenId> shared = RandomLetters(random, 40), other = RandomLetters(random, 10);
  Serve(harness, Ask(Joined(shared, RandomLetters(random, 5)), 3));
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
  EXPECT_EQ(Serve(harness, Ask(shared, 3))->cached_tokens, 39) << "two pages, and the part of the third that is its own";
  EXPECT_EQ(Serve(harness, Ask(shared, 3))->cached_tokens, 39) << "the last token is computed always";
  harness.ExpectClean();
}

// A page that is full, and that another sequence may hold: its beginning is a copy's.
TEST(StepEnginePrefixTest, APromptThatPartsWithinAKnownPageUsesItsBeginning) {
  Harness harness;
  std::mt19937_64 random(8);
  const std::vector<TokenId> known = RandomLetters(random, 64), other = RandomLetters(random, 20);
  Serve(harness, Ask(known, 2));
  const std::vector<TokenId> within(known.begin(), known.begin() + 39), whole(known.begin(), known.begin() + 48);
  EXPECT_EQ(Serve(harness, Ask(within, 3))->cached_tokens, 38);
  EXPECT_EQ(Serve(harness, Ask(whole, 3))->cached_tokens, 47);
  EXPECT_EQ(Serve(harness, Ask(Joined(within, Bytes("xyz")), 3))->cached_tokens, 39);
  EXPECT_EQ(Serve(harness, Ask(known, 3))->cached_tokens, 63) << "nobody wrote to what it left";

  const EngineRequest holder = Ask(Joined(known, other), 8);
  auto held = harness.Submit(holder);
  while (held->infos.empty()) harness.engine->RunOneStep();
  const EngineRequest beside = Ask(whole, 3);
  auto recorder = harness.Submit(beside);
  harness.RunAll();
  ExpectAnswer(*recorder, Reference(beside));
  ExpectAnswer(*held, Reference(holder));
  EXPECT_EQ(recorder->cached_tokens, 47) << "of a page that another sequence holds";
  harness.ExpectClean();
}

TEST(StepEnginePrefixTest, TheOnlyFreePageIsTakenWhereItIsTheOneThatPromptsShare) {
  HarnessOptions options;
  options.pages = 6;
  Harness harness(options);
  std::mt19937_64 random(9);
  const std::vector<TokenId> known = RandomLetters(random, 96);
  EngineRequest first = Ask({known.begin(), known.begin() + 94}, 2);
  Serve(harness, first);  // of six pages five are full, and known
  const std::vector<TokenId> parts(known.begin(), known.begin() + 70);
  EXPECT_GE(Serve(harness, Ask(parts, 20))->cached_tokens, 64);
  harness.ExpectClean();
}

TEST(StepEnginePrefixTest, SwitchedOffOrScoredNothingIsFound) {
  HarnessOptions options;
  options.engine.prefix_cache = false;
  Harness off(options), on;
  std::mt19937_64 random(2);
  const std::vector<TokenId> prompt = RandomLetters(random, 50);
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_EQ(Serve(off, Ask(prompt, 3))->cached_tokens, 0);
    EngineRequest score = Ask(prompt, 3), answer = score;
    score.kind = RequestKind::kScore;
    answer.prompt_logprobs = true;
    for (const EngineRequest& scored : {score, answer}) {
      auto recorder = on.Submit(scored);
      on.RunAll();
      EXPECT_EQ(recorder->cached_tokens, 0);
      EXPECT_EQ(recorder->finish->prompt_logprobs.size(), 49u);
      const bool none = turn == 0 && scored.kind == RequestKind::kScore;
      EXPECT_EQ(on.engine->Stats().kv_pages_remembered == 0, none);
    }
  }
  EXPECT_EQ(off.engine->Stats().prefix_queries, 0u);
  EXPECT_EQ(on.engine->Stats().prefix_queries, 0u);
  off.ExpectClean();
  on.ExpectClean();
}

// What one tenant has sent changes nothing that another one could see or time: as many tokens are computed, in as many steps, as
// for a stranger's prompt in an engine that knows nothing. So it is with windows and states, which checkpoints keep.
TEST(StepEnginePrefixTest, WhatATenantComputedNobodyElseBeginsWith) {
  for (const bool slots : {false, true}) {
    HarnessOptions options;
    options.window = slots ? 20 : 0;
    options.state = slots;
    options.slots = slots ? 8 : 1;
    std::mt19937_64 random(12);
    const std::vector<TokenId> prompt = RandomLetters(random, 70);
    const auto ask = [&](const std::string& tenant, const std::string& session = "") {
      EngineRequest request = Ask(prompt, 6, session);
      request.tenant = tenant;
      return request;
    };
    const auto cost = [&](Harness& harness, const EngineRequest& request) {
      const int computed = harness.model->computed_tokens;
      const uint64_t steps = harness.engine->Stats().steps;
      const auto recorder = Serve(harness, request);
      return std::tuple(recorder->cached_tokens, harness.model->computed_tokens - computed,
                        harness.engine->Stats().steps - steps);
    };
    Harness harness(options), fresh(options);
    const auto unknown = cost(fresh, ask("alice"));
    EXPECT_EQ(std::get<0>(unknown), 0);
    EXPECT_EQ(cost(harness, ask("alice")), unknown);
    EXPECT_EQ(cost(harness, ask("bob")), unknown);
    EXPECT_EQ(cost(harness, ask("")), unknown);
    EXPECT_EQ(cost(harness, ask("carol", "carol/1")), unknown);
    for (const char* tenant : {"alice", "bob", "", "carol"}) {
      EXPECT_GE(std::get<0>(cost(harness, ask(tenant))), 64) << "its own: '" << tenant << "'";
    }
    harness.ExpectClean();
  }
}

// The promise to clients without sessions: every turn costs what a session's turn costs.
TEST(StepEnginePrefixTest, AStatelessClientPaysForNewTokensOnly) {
  HarnessOptions options;
  options.engine.max_context = 512;
  Harness stateless(options), session(options);
  std::mt19937_64 random(3);
  std::vector<TokenId> history;
  for (int turn = 0; turn < 10; ++turn) {
    const std::vector<TokenId> said = RandomLetters(random, 1 + random() % 30);
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
  const std::vector<TokenId> shared = RandomLetters(random, 80);  // five pages
  Serve(harness, Ask(shared, 2));
  std::vector<std::pair<EngineRequest, std::shared_ptr<Recorder>>> together;
  for (int i = 0; i < 4; ++i) {
    const EngineRequest request = Ask(Joined(shared, RandomLetters(random, 3)), 6);
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
  const std::vector<TokenId> prompt = RandomLetters(random, 40);
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
  const std::vector<TokenId> another = RandomLetters(random, 40);
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
  const std::vector<TokenId> said = RandomLetters(random, 40), old = RandomLetters(random, 30),
                             recent = RandomLetters(random, 30);
  const std::vector<TokenId> history = Joined(said, Serve(harness, Ask(said, 4, "s"))->tokens());
  Serve(harness, Ask(old, 2));
  Serve(harness, Ask(recent, 2));
  Serve(harness, Ask(RandomLetters(random, 30), 2));  // of 8 pages 3 are the session's, 4 are remembered
  EXPECT_EQ(Serve(harness, Ask(old, 2))->cached_tokens, 16) << "of the oldest, the end first";
  EXPECT_EQ(Serve(harness, Ask(RandomLetters(random, 5), 2, "s"), history)->cached_tokens, 43);
  harness.ExpectClean();
}

TEST(StepEnginePrefixTest, ADeletedConversationIsNotRemembered) {
  Harness harness;
  std::mt19937_64 random(7);
  const std::vector<TokenId> said = RandomLetters(random, 50);
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
      const Soaked soaked = Soak(harness, static_cast<uint64_t>(pages * 100 + step_tokens), 40);
      EXPECT_GT(soaked.cached, 400) << pages << " pages";
      EXPECT_GT(soaked.cut, 0);
      harness.ExpectClean();
    }
  }
}

}  // namespace step_engine_prefix_test
}  // namespace moed
