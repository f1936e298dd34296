// What a client may rely on of its conversations: that they are there, as long as it left them, and gone when it says so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/engine_harness.h"

namespace moed {
namespace step_engine_promise_test {

using ::testing::HasSubstr;

EngineRequest Turn(const std::string& session, std::string_view prompt, int new_tokens) {
  EngineRequest request = GreedyRequest(prompt, new_tokens);
  request.session_id = session;
  return request;
}

std::shared_ptr<Recorder> Say(Harness& harness, const EngineRequest& request) {
  auto recorder = harness.Submit(request);
  harness.RunAll();
  return recorder;
}

TEST(StepEnginePromiseTest, WhatMustExistIsRefusedWhereItDoesNot) {
  Harness harness;
  EngineRequest request = Turn("s", "hello", 4);
  request.must_exist = true;
  const absl::Status missing = harness.SubmitError(request);
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("must_exist: session \"s\""));
  Say(harness, Turn("s", "hello", 4));
  EXPECT_TRUE(Say(harness, request)->finish->status.ok());
  harness.ExpectClean();
}

TEST(StepEnginePromiseTest, AnotherNumberOfTokensThanExpectedIsRefusedWithTheirNumber) {
  Harness harness;
  EngineRequest request = Turn("s", "hello", 4);
  request.expected_tokens = 1;
  EXPECT_THAT(std::string(harness.SubmitError(request).message()), HasSubstr("holds 0 tokens, not 1"));
  request.expected_tokens = 0;
  EXPECT_EQ(Say(harness, request)->finish->session_tokens, 9);
  const absl::Status second = harness.SubmitError(request);
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.message()), HasSubstr("expected_tokens: session \"s\" holds 9 tokens, not 0"));
  request.expected_tokens = 9;
  EXPECT_EQ(Say(harness, request)->finish->session_tokens, 18);
  request.expected_tokens = -1;
  EXPECT_EQ(harness.SubmitError(request).code(), absl::StatusCode::kInvalidArgument);
  // What another server held, whose context is longer.
  request.expected_tokens = 97;
  EXPECT_EQ(harness.SubmitError(request).code(), absl::StatusCode::kFailedPrecondition);
  request.session_id = "of another server";
  request.must_exist = true;
  EXPECT_EQ(harness.SubmitError(request).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Say(harness, GreedyRequest("alone", 3))->finish->session_tokens, 0);
  harness.ExpectClean();
}

TEST(StepEnginePromiseTest, WhereNoConversationIsKeptThereIsNothingToExpect) {
  HarnessOptions options;
  options.engine.max_kept_sessions = 0;
  Harness harness(options);
  EngineRequest request = Turn("s", "hello", 4);
  for (int i = 0; i < 2; ++i) {
    const auto answer = Say(harness, request);
    ASSERT_TRUE(answer->finish->status.ok()) << answer->finish->status;
    EXPECT_EQ(answer->finish->session_tokens, 0);
    request.expected_tokens = answer->finish->session_tokens;
  }
  harness.ExpectClean();
}

TEST(StepEnginePromiseTest, PromisesNeedASession) {
  Harness harness;
  EngineRequest request = GreedyRequest("hello", 1);
  request.must_exist = true;
  EXPECT_THAT(std::string(harness.SubmitError(request).message()), HasSubstr("must_exist: needs a session_id"));
  request.must_exist = false;
  request.expected_tokens = 0;
  EXPECT_THAT(std::string(harness.SubmitError(request).message()), HasSubstr("expected_tokens: needs a session_id"));
}

TEST(StepEnginePromiseTest, ADeletedConversationIsGoneWithItsMemory) {
  Harness harness;
  EXPECT_EQ(harness.engine->DeleteSession("s").code(), absl::StatusCode::kNotFound);
  auto running = harness.Submit(Turn("s", "hello", 4));
  harness.engine->RunOneStep();
  EXPECT_EQ(harness.engine->DeleteSession("s").code(), absl::StatusCode::kAborted);
  harness.RunAll();
  EXPECT_LT(harness.kv->free_pages(), harness.kv->pages());
  EXPECT_TRUE(harness.engine->DeleteSession("s").ok());
  EXPECT_FALSE(harness.engine->HasSession("s"));
  EXPECT_EQ(harness.engine->DeleteSession("s").code(), absl::StatusCode::kNotFound);
  harness.engine->RunOneStep();
  EXPECT_EQ(harness.kv->free_pages(), harness.kv->pages());
  EXPECT_EQ(harness.provider.ended.size(), 1u);
  EXPECT_EQ(Say(harness, Turn("s", "hello", 4))->cached_tokens, 0);
  harness.ExpectClean();
}

// The pages of a conversation that was deleted after the turn began are the only ones left.
TEST(StepEnginePromiseTest, MemoryOfWhatIsDeletedDuringATurnIsFound) {
  HarnessOptions options;
  options.pages = 6;
  Harness harness(options);
  Say(harness, Turn("s", std::string(60, 'x'), 2));
  auto grower = harness.Submit(GreedyRequest(std::string(30, 'y'), 40));
  harness.model->on_forward = [&](std::span<SequenceChunk>) { (void)harness.engine->DeleteSession("s"); };
  harness.RunAll();
  EXPECT_EQ(grower->finish->completion_tokens, 40);
  harness.model->on_forward = nullptr;
  harness.ExpectClean();
}

TEST(StepEnginePromiseTest, SessionsAreListedTheMostRecentFirst) {
  Harness harness;
  for (const char* name : {"a", "b", "c"}) {
    harness.clock.AdvanceNanos(1'000'000'000);
    Say(harness, Turn(name, "hello", 4));
  }
  harness.Submit(Turn("b", "more", 4));
  harness.engine->RunOneStep();
  const auto list = harness.engine->ListSessions(10);
  ASSERT_EQ(list.size(), 3u);
  EXPECT_TRUE(list[0].busy && list[0].name == "b");
  EXPECT_EQ(list[1].name, "c");
  EXPECT_EQ(list[1].tokens, 9);
  EXPECT_EQ(list[1].computed, 8);
  EXPECT_EQ(list[2].name, "a");
  EXPECT_EQ(list[1].used_nanos - list[2].used_nanos, 2'000'000'000);
  EXPECT_EQ(harness.engine->ListSessions(2).size(), 2u);
  harness.RunAll();
  harness.ExpectClean();
}

TEST(StepEnginePromiseTest, NoMoreIsCachedThanPromptedAndWhatIsComputedAgainIsCounted) {
  HarnessOptions options;
  options.pages = 6;
  Harness harness(options);
  Say(harness, Turn("s", std::string(40, 'x'), 4));
  EXPECT_EQ(harness.engine->Stats().recomputed_tokens, 0u);
  Say(harness, GreedyRequest(std::string(80, 'y'), 2));  // takes the session's pages
  const auto again = Say(harness, Turn("s", "more", 4));
  EXPECT_EQ(again->prompt_tokens, 48);
  EXPECT_EQ(again->cached_tokens, 0);
  EXPECT_EQ(harness.engine->Stats().recomputed_tokens, 43u) << "all but the last token of the first answer";
  const auto third = Say(harness, Turn("s", "x", 1));
  EXPECT_EQ(third->finish->prompt_tokens, 53);
  EXPECT_EQ(third->finish->cached_tokens, 51);
  const EngineStats stats = harness.engine->Stats();
  EXPECT_EQ(stats.recomputed_tokens, 43u);
  EXPECT_EQ(stats.prompt_tokens, 40u + 80 + 48 + 53);
  EXPECT_EQ(stats.cached_tokens, 51u);
  harness.ExpectClean();
}

}  // namespace step_engine_promise_test
}  // namespace moed
