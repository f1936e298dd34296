// Conversations: kept, continued, dropped, computed again, forgotten.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/engine_harness.h"

namespace moed {
namespace step_engine_session_test {

using ::testing::HasSubstr;

EngineRequest Turn(const std::string& session, std::string_view prompt, int new_tokens) {
  EngineRequest request = GreedyRequest(prompt, new_tokens);
  request.session_id = session;
  return request;
}

std::vector<TokenId> Joined(std::vector<TokenId> history, const EngineRequest& request, const Expected& answer) {
  history.insert(history.end(), request.prompt.begin(), request.prompt.end());
  history.insert(history.end(), answer.tokens.begin(), answer.tokens.end());
  return history;
}

// A conversation beside its history as the naive loop has it.
struct Conversation {
  std::string session;
  std::vector<TokenId> history;

  std::shared_ptr<Recorder> Say(Harness& harness, EngineRequest request) {
    const Expected expected = Reference(request, history);
    auto recorder = harness.Submit(request);
    harness.RunAll();
    ExpectAnswer(*recorder, expected);
    history = Joined(history, request, expected);
    return recorder;
  }
};

TEST(StepEngineSessionTest, TheNextRequestContinuesAfterTheAnswer) {
  Harness harness;
  Conversation conversation{"s", {}};
  EXPECT_FALSE(harness.engine->HasSession("s"));
  auto first = conversation.Say(harness, Turn("s", "hello", 6));
  EXPECT_EQ(first->cached_tokens, 0);
  EXPECT_TRUE(harness.engine->HasSession("s"));
  auto second = conversation.Say(harness, Turn("s", "more", 6));
  EXPECT_EQ(second->prompt_tokens, 15) << "of the whole prompt";
  EXPECT_EQ(second->cached_tokens, 10);  // the last token of an answer cut off by length is not computed yet
  EXPECT_EQ(second->finish->cached_tokens, 10);
  EXPECT_EQ(second->finish->expert_hits, 10u);  // of this request alone: 1 + 4 + 5
  EXPECT_EQ(harness.engine->Stats().cached_tokens, 10u);
  EXPECT_EQ(harness.provider.live.size(), 1u) << "one sequence";
  harness.ExpectClean();
}

TEST(StepEngineSessionTest, WhatIsKeptIsPausedUntilItGoesOn) {
  Harness harness;
  Conversation conversation{"s", {}};
  conversation.Say(harness, Turn("s", "hello", 6));
  EXPECT_EQ(harness.provider.paused, harness.provider.live);
  std::set<SequenceId> paused;
  auto again = harness.Submit(Turn("s", "more", 6));
  again->on_tokens = [&] { paused = harness.provider.paused; };
  harness.RunAll();
  ASSERT_FALSE(again->infos.empty());
  EXPECT_TRUE(paused.empty());
  EXPECT_EQ(harness.provider.paused, harness.provider.live);
}

TEST(StepEngineSessionTest, TheEndingTokenIsNotPartOfTheConversation) {
  Harness harness;
  Conversation conversation{"s", {}};
  EngineRequest request = Turn("s", "hello", 40);
  request.stopping.ignore_eos = false;
  ASSERT_EQ(Reference(request).reason, FinishReason::kStop);
  const int known = static_cast<int>(request.prompt.size() + Reference(request).tokens.size());
  conversation.Say(harness, request);
  EXPECT_EQ(conversation.Say(harness, Turn("s", "x", 3))->cached_tokens, known);
}

TEST(StepEngineSessionTest, ConversationsAtOnceWithFewPagesAreComputedAgain) {
  HarnessOptions options;
  options.pages = 7;
  Harness harness(options);
  std::vector<Conversation> conversations{{"a", {}}, {"b", {}}, {"c", {}}, {"d", {}}};
  int recomputed = 0;
  for (int round = 0; round < 4; ++round) {
    std::vector<std::tuple<Conversation*, EngineRequest, Expected, std::shared_ptr<Recorder>>> turns;
    for (Conversation& conversation : conversations) {
      EngineRequest request = Turn(conversation.session, conversation.session + "says" + std::to_string(round), 8 + round);
      Expected expected = Reference(request, conversation.history);
      turns.emplace_back(&conversation, request, expected, harness.Submit(request));
    }
    harness.RunAll();
    for (auto& [conversation, request, expected, recorder] : turns) {
      ExpectAnswer(*recorder, expected);
      if (round > 0 && recorder->cached_tokens == 0) ++recomputed;
      conversation->history = Joined(conversation->history, request, expected);
    }
  }
  EXPECT_GT(recomputed, 0);
  EXPECT_EQ(harness.engine->Stats().sessions, 4);
  harness.ExpectClean();
}

TEST(StepEngineSessionTest, TheLeastRecentlyUsedLosesItsPagesFirst) {
  HarnessOptions options;
  options.pages = 6;
  Harness harness(options);
  Conversation a{"a", {}}, b{"b", {}}, c{"c", {}};
  a.Say(harness, Turn("a", std::string(20, 'x'), 2));  // 2 pages each
  b.Say(harness, Turn("b", std::string(20, 'y'), 2));
  c.Say(harness, Turn("c", std::string(20, 'z'), 2));
  harness.Submit(GreedyRequest(std::string(20, 'w'), 2));
  harness.RunAll();
  EXPECT_GT(b.Say(harness, Turn("b", "q", 2))->cached_tokens, 0);
  EXPECT_GT(c.Say(harness, Turn("c", "q", 2))->cached_tokens, 0);
  EXPECT_EQ(a.Say(harness, Turn("a", "q", 2))->cached_tokens, 0);
  harness.ExpectClean();
}

TEST(StepEngineSessionTest, BeyondTheBoundTheOldestConversationIsForgotten) {
  HarnessOptions options;
  options.engine.max_kept_sessions = 2;
  Harness harness(options);
  Conversation a{"a", {}}, b{"b", {}}, c{"c", {}};
  a.Say(harness, Turn("a", "one", 3));
  b.Say(harness, Turn("b", "two", 3));
  c.Say(harness, Turn("c", "three", 3));
  EXPECT_EQ(harness.engine->Stats().sessions, 2);
  EXPECT_EQ(harness.provider.ended.size(), 1u);
  EXPECT_FALSE(harness.engine->HasSession("a"));
  EngineRequest must_continue = Turn("a", "x", 2);
  must_continue.continues_session = true;
  const absl::Status gone = harness.SubmitError(must_continue);
  EXPECT_EQ(gone.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(gone.message()), HasSubstr("\"a\" is no longer kept"));
  a.history.clear();
  a.Say(harness, Turn("a", "new", 3));
  c.Say(harness, Turn("c", "still here", 3));
  harness.ExpectClean();
}

TEST(StepEngineSessionTest, ABusySessionIsAborted) {
  Harness harness;
  auto first = harness.Submit(Turn("s", "hello", 5));
  for (int step = 0; step < 3; ++step) {
    const absl::Status busy = harness.SubmitError(Turn("s", "again", 5));
    EXPECT_EQ(busy.code(), absl::StatusCode::kAborted);
    EXPECT_THAT(std::string(busy.message()), HasSubstr("\"s\""));
    EXPECT_TRUE(harness.engine->HasSession("s"));
    harness.engine->RunOneStep();
  }
  harness.Submit(Turn("other", "hello", 5));
  harness.RunAll();
  harness.Submit(Turn("s", "again", 5));
  harness.RunAll();
  harness.ExpectClean();
}

TEST(StepEngineSessionTest, AnObserverMayHearOfTheEndAfterNameAndSessionAreFree) {
  Harness harness;
  const EngineRequest request = Turn("s", "hello", 2);
  auto recorder = std::make_shared<Recorder>();
  recorder->on_finish = [&] {
    EXPECT_EQ(harness.engine->FindRequest(request.name), std::nullopt);
    EXPECT_EQ(harness.engine->Stats().running, 0);
    EXPECT_FALSE(harness.engine->Idle());
  };
  ASSERT_TRUE(harness.engine->Submit(request, recorder).ok());
  harness.RunAll();
  EXPECT_TRUE(recorder->finish);
  harness.ExpectClean();
}

TEST(StepEngineSessionTest, HistoryCountsAgainstTheContext) {
  Harness harness;
  Conversation conversation{"s", {}};
  conversation.Say(harness, Turn("s", std::string(60, 'x'), 10));
  const absl::Status status = harness.SubmitError(Turn("s", std::string(26, 'x'), 1));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("after 70 of the session"));
  EXPECT_FALSE(harness.engine->FindRequest("nobody"));
  auto last = conversation.Say(harness, Turn("s", std::string(20, 'x'), 60));
  EXPECT_EQ(last->finish->completion_tokens, 6);
  EXPECT_EQ(last->finish->reason, FinishReason::kContext);
  EXPECT_EQ(last->finish->session_tokens, 96);
  EXPECT_EQ(conversation.history.size(), 96u);
  const absl::Status full = harness.SubmitError(Turn("s", "x", 1));
  EXPECT_EQ(full.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(full.message()), HasSubstr("begin another, or delete it"));
  harness.ExpectClean();
}

TEST(StepEngineSessionTest, WhatFailsOrIsCancelledLeavesTheSessionAsItWas) {
  for (int steps = 0; steps < 6; ++steps) {
    for (bool cancel : {true, false}) {
      Harness harness;
      Conversation conversation{"s", {}};
      conversation.Say(harness, Turn("s", "hello", 4));
      const EngineRequest request = Turn("s", std::string(40, 'x'), 10);
      auto recorder = harness.Submit(request);
      for (int step = 0; step < steps; ++step) harness.engine->RunOneStep();
      if (cancel) {
        EXPECT_TRUE(harness.engine->Cancel(harness.ids[request.name], absl::CancelledError("no")));
      } else {
        harness.model->fails = [](const SequenceChunk&) { return absl::DataLossError("bad expert"); };
      }
      harness.RunAll();
      EXPECT_EQ(recorder->finish->status.code(), cancel ? absl::StatusCode::kCancelled : absl::StatusCode::kDataLoss);
      harness.model->fails = nullptr;
      // The last token of "hello" + 4 is computed by whoever runs next.
      EXPECT_EQ(conversation.Say(harness, Turn("s", "more", 6))->cached_tokens, steps == 0 ? 8 : 9);
      harness.ExpectClean();
    }
  }
}

TEST(StepEngineSessionTest, WhatWasReservedForATurnThatIsCancelledIsFreeAgain) {
  Harness harness;
  Conversation conversation{"s", {}};
  conversation.Say(harness, Turn("s", "hello", 4));
  const EngineRequest elder = GreedyRequest(std::string(40, 'y'), 4), younger = Turn("s", std::string(70, 'x'), 4);
  const auto first = harness.Submit(elder), second = harness.Submit(younger);
  harness.engine->RunOneStep();
  ASSERT_TRUE(second->started);
  EXPECT_TRUE(harness.engine->Cancel(harness.ids[younger.name], absl::CancelledError("no")));
  harness.RunAll();
  ExpectAnswer(*first, Reference(elder));
  EXPECT_EQ(harness.engine->Stats().kv_pages_used, 1) << "of 8 tokens";
  EXPECT_EQ(conversation.Say(harness, Turn("s", "more", 6))->cached_tokens, 8) << "nothing of the turn was computed";
  harness.ExpectClean();
}

TEST(StepEngineSessionTest, ANewSessionWhoseFirstRequestFailsDoesNotExist) {
  Harness harness;
  harness.model->fails = [](const SequenceChunk&) { return absl::DataLossError("bad"); };
  harness.Submit(Turn("s", "hello", 4));
  harness.RunAll();
  EXPECT_FALSE(harness.engine->HasSession("s"));
  EXPECT_EQ(harness.engine->Stats().sessions, 0);
  harness.ExpectClean();
}

TEST(StepEngineSessionTest, APreemptedConversationIsComputedAgain) {
  HarnessOptions options;
  options.pages = 6;
  options.engine.max_running = 2;
  Harness harness(options);
  Conversation conversation{"s", {}};
  conversation.Say(harness, Turn("s", "hello there", 4));
  const EngineRequest elder = GreedyRequest("elder", 60);  // grows to 5 pages
  const EngineRequest younger = Turn("s", "tell me", 40);  // to 4
  const Expected expected_elder = Reference(elder), expected_younger = Reference(younger, conversation.history);
  auto first = harness.Submit(elder);
  auto second = harness.Submit(younger);
  harness.RunAll();
  ExpectAnswer(*first, expected_elder);
  ExpectAnswer(*second, expected_younger);
  EXPECT_EQ(first->finish->preemptions, 0) << "the youngest gives way";
  EXPECT_GT(second->finish->preemptions, 0);
  EXPECT_EQ(second->cached_tokens, 14);
  harness.ExpectClean();
}

TEST(StepEngineSessionTest, SamplingIsThatOfOneLongRequest) {
  Harness harness;
  EngineRequest request = Turn("s", "hello", 10);
  request.sampling.temperature = 1;
  request.sampling.seed = 9;
  auto whole = harness.Submit([&] {
    auto r = request;
    r.session_id = "";
    return r;
  }());
  harness.RunAll();
  request.stopping.max_new_tokens = 4;
  auto first = harness.Submit(request);
  harness.RunAll();
  // Continued with the next token of the answer as its prompt.
  EngineRequest rest = request;
  rest.name = "rest";
  rest.prompt = {whole->tokens()[4]};
  rest.stopping.max_new_tokens = 5;
  auto second = harness.Submit(rest);
  harness.RunAll();
  auto joined = first->tokens();
  joined.push_back(rest.prompt[0]);
  for (TokenId token : second->tokens()) joined.push_back(token);
  EXPECT_EQ(joined, whole->tokens());
}

}  // namespace step_engine_session_test
}  // namespace moed
