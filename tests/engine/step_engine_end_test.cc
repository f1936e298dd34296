// Admission, cancellation, time limits, failures, drain and stop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>

#include "tests/engine/engine_harness.h"

namespace moed {
namespace step_engine_end_test {

using ::testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000'000;

TEST(StepEngineEndTest, AFullQueueRefuses) {
  HarnessOptions options;
  options.engine.max_running = 2;
  options.engine.queue_capacity = 3;
  Harness harness(options);
  std::vector<std::shared_ptr<Recorder>> admitted;
  for (int i = 0; i < 5; ++i) admitted.push_back(harness.Submit(GreedyRequest("p", 3)));
  for (int step = 0; step < 2; ++step) {
    const absl::Status full = harness.SubmitError(GreedyRequest("p", 3));
    EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(full.message()), HasSubstr("5"));
    harness.engine->RunOneStep();
    EXPECT_EQ(harness.engine->Stats().running, 2);
    EXPECT_EQ(harness.engine->Stats().waiting, 3);
  }
  harness.engine->RunOneStep();  // the first two end
  admitted.push_back(harness.Submit(GreedyRequest("p", 3)));
  harness.RunAll();
  for (const auto& recorder : admitted) EXPECT_TRUE(recorder->finish->status.ok());
  harness.ExpectClean();
}

TEST(StepEngineEndTest, NamesAreUniqueAmongTheLiving) {
  Harness harness;
  const EngineRequest request = GreedyRequest("p", 3);
  harness.Submit(request);
  EXPECT_EQ(harness.engine->FindRequest(request.name), harness.ids[request.name]);
  const absl::Status status = harness.SubmitError(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr(request.name));
  harness.RunAll();
  EXPECT_EQ(harness.engine->FindRequest(request.name), std::nullopt);
  harness.Submit(request);
  harness.RunAll();
}

TEST(StepEngineEndTest, TenantsDoNotShareNames) {
  Harness harness;
  EngineRequest request = GreedyRequest("p", 3);
  request.name = "job";
  std::vector<RequestId> ids;
  for (const char* tenant : {"one", "two"}) {
    request.tenant = tenant;
    harness.Submit(request);
    ids.push_back(harness.ids[request.name]);
    EXPECT_EQ(harness.SubmitError(request).code(), absl::StatusCode::kAlreadyExists);
    EXPECT_EQ(harness.engine->FindRequest("job"), tenant == std::string("one") ? std::optional(ids[0]) : std::nullopt);
  }
  EXPECT_EQ(harness.engine->FindRequest("one/job"), ids[0]);
  EXPECT_EQ(harness.engine->FindRequest("two/job"), ids[1]);
  harness.RunAll();
  EXPECT_EQ(harness.engine->FindRequest("one/job"), std::nullopt);
}

// "/" separates a tenant alone: names may have it, too.
TEST(StepEngineEndTest, ANameIsNotFoundByItsEnd) {
  for (const char* tenant : {"", "alice"}) {
    Harness harness;
    EngineRequest request = GreedyRequest("p", 3);
    request.name = "job/3";
    request.tenant = tenant;
    harness.Submit(request);
    EXPECT_EQ(harness.engine->FindRequest("3"), std::nullopt) << tenant;
    EXPECT_EQ(harness.engine->FindRequest("job/3"), harness.ids[request.name]) << tenant;
    harness.RunAll();
  }
}

TEST(StepEngineEndTest, WhatIsInvalidIsRefused) {
  Harness harness;
  EngineRequest request = GreedyRequest("p", 3);
  request.sampling.top_p = 2;
  EXPECT_EQ(harness.SubmitError(request).code(), absl::StatusCode::kInvalidArgument);
  request = GreedyRequest("p", 65);
  EXPECT_THAT(std::string(harness.SubmitError(request).message()), HasSubstr("stopping.max_new_tokens: 65 is not in [1, 64]"));
  EXPECT_THAT(std::string(harness.SubmitError(GreedyRequest(std::string(96, 'x'), 3)).message()),
              HasSubstr("leaves room for 95"));
  EXPECT_TRUE(harness.engine->Idle());
}

TEST(StepEngineEndTest, LengthIsTheRequestsOrTheLimitOrTheContext) {
  struct Case {
    int prompt;
    std::optional<int> asked;
    int answer;
  };
  for (const Case& c : {Case{10, 7, 7}, Case{10, std::nullopt, 64}, Case{50, std::nullopt, 46}, Case{50, 60, 46}, Case{95, 9, 1},
                        Case{1, 1, 1}}) {
    Harness harness;
    EngineRequest request = GreedyRequest(std::string(c.prompt, 'x'), 1);
    request.stopping.max_new_tokens = c.asked;
    auto recorder = harness.Submit(request);
    harness.RunAll();
    EXPECT_EQ(recorder->finish->completion_tokens, c.answer);
    EXPECT_EQ(recorder->finish->reason, c.prompt + c.answer == 96 ? FinishReason::kContext : FinishReason::kLength);
    ExpectAnswer(*recorder, Reference(request));
  }
}

TEST(StepEngineEndTest, WithoutALimitAnAnswerHasWhatTheContextLeaves) {
  HarnessOptions options;
  options.engine.max_new_tokens.reset();
  for (const std::optional<int> asked : {std::optional<int>(), std::optional<int>(96), std::optional<int>(INT_MAX)}) {
    Harness harness(options);
    EngineRequest request = GreedyRequest("0123456789", 1);
    request.stopping.max_new_tokens = asked;
    auto recorder = harness.Submit(request);
    harness.RunAll();
    EXPECT_EQ(recorder->finish->completion_tokens, 86);
    EXPECT_EQ(recorder->finish->reason, FinishReason::kContext);
    ExpectAnswer(*recorder, Reference(request, {}, 96, 86));
  }
}

TEST(StepEngineEndTest, CancelInEveryPhase) {
  // In the queue, in prefill (the prompt takes three steps), at the first token, in the middle of decoding.
  for (int steps : {0, 1, 2, 3, 6}) {
    for (bool behind : {false, true}) {
      HarnessOptions options;
      options.engine.max_running = 1;
      Harness harness(options);
      if (behind) harness.Submit(GreedyRequest("first", 30));
      const EngineRequest request = GreedyRequest(std::string(40, 'x'), 20);
      auto recorder = harness.Submit(request);
      for (int step = 0; step < steps; ++step) harness.engine->RunOneStep();
      const RequestId id = harness.ids[request.name];
      EXPECT_TRUE(harness.engine->Cancel(id, absl::CancelledError("the client went away")));
      EXPECT_TRUE(harness.engine->Cancel(id, absl::DeadlineExceededError("too late: the first counts")));
      EXPECT_FALSE(recorder->finish);
      harness.engine->RunOneStep();
      ASSERT_TRUE(recorder->finish);
      EXPECT_EQ(recorder->finish->status, absl::CancelledError("the client went away"));
      EXPECT_EQ(recorder->started, !behind && steps > 0);
      EXPECT_EQ(recorder->infos.size(), static_cast<size_t>(behind ? 0 : std::max(0, steps - 2)));
      EXPECT_EQ(recorder->finish->completion_tokens, static_cast<int>(recorder->infos.size()));
      EXPECT_FALSE(harness.engine->Cancel(id, absl::CancelledError("again")));
      harness.RunAll();
      harness.ExpectClean();
    }
  }
}

TEST(StepEngineEndTest, AnObserverMayCancel) {
  Harness harness;
  const EngineRequest request = GreedyRequest("p", 20);
  auto recorder = harness.Submit(request);
  recorder->on_tokens = [&] {
    if (recorder->infos.size() == 3) harness.engine->Cancel(harness.ids[request.name], absl::CancelledError("slow client"));
  };
  harness.RunAll();
  EXPECT_EQ(recorder->infos.size(), 3u);
  EXPECT_EQ(recorder->finish->status.code(), absl::StatusCode::kCancelled);
  harness.ExpectClean();
}

TEST(StepEngineEndTest, TheTimeLimitCountsFromArrivalInEveryPhase) {
  for (int steps : {0, 1, 3, 6}) {
    HarnessOptions options;
    options.engine.max_running = 1;
    Harness harness(options);
    harness.clock.AdvanceNanos(100 * kSecond);
    EngineRequest request = GreedyRequest(std::string(40, 'x'), 20);
    request.arrival_nanos = 99 * kSecond;
    request.stopping.time_limit_seconds = 3;
    request.stopping.stop_strings = {"abcdefgh"};
    const std::vector<TokenId> whole = Reference(request).tokens;
    auto recorder = harness.Submit(request);
    for (int step = 0; step < steps; ++step) harness.engine->RunOneStep();
    harness.clock.AdvanceNanos(2 * kSecond - 1);
    harness.engine->RunOneStep();
    EXPECT_FALSE(recorder->finish);
    harness.clock.AdvanceNanos(1);
    harness.engine->RunOneStep();
    ASSERT_TRUE(recorder->finish);
    EXPECT_TRUE(recorder->finish->status.ok());
    EXPECT_EQ(recorder->finish->reason, FinishReason::kTimeLimit);
    const int tokens = std::max(0, steps - 1);  // the third step gives the first
    EXPECT_EQ(recorder->finish->completion_tokens, tokens);
    EXPECT_EQ(recorder->text, *ByteTokenizer().Decode(std::span(whole).first(tokens)))
        << "what a stop string held back comes at the end";
    harness.ExpectClean();
  }
}

TEST(StepEngineEndTest, TheTimeLimitEndsWhatStillWaits) {
  HarnessOptions options;
  options.engine.max_running = 1;
  Harness harness(options);
  harness.Submit(GreedyRequest("p", 60));
  EngineRequest request = GreedyRequest("p", 5);
  request.stopping.time_limit_seconds = 1;
  auto recorder = harness.Submit(request);
  harness.engine->RunOneStep();
  harness.clock.AdvanceNanos(kSecond);
  harness.engine->RunOneStep();
  ASSERT_TRUE(recorder->finish);
  EXPECT_FALSE(recorder->started);
  EXPECT_EQ(recorder->finish->reason, FinishReason::kTimeLimit);
  EXPECT_DOUBLE_EQ(recorder->finish->timings.queue_seconds, 1);
  harness.RunAll();
  harness.ExpectClean();
}

TEST(StepEngineEndTest, TimingsAddUp) {
  Harness harness;
  harness.clock.AdvanceNanos(10 * kSecond);
  EngineRequest request = GreedyRequest(std::string(40, 'x'), 5);
  request.arrival_nanos = 9 * kSecond;
  auto recorder = harness.Submit(request);
  harness.model->on_forward = [&](auto) { harness.clock.AdvanceNanos(2 * kSecond); };
  harness.RunAll();
  const RequestTimings& timings = recorder->finish->timings;
  EXPECT_DOUBLE_EQ(timings.queue_seconds, 1);
  EXPECT_DOUBLE_EQ(timings.prefill_seconds, 6);  // 40 tokens, 16 a step
  EXPECT_DOUBLE_EQ(timings.decode_seconds, 8);
  EXPECT_DOUBLE_EQ(timings.ttft_seconds, 7);
  EXPECT_DOUBLE_EQ(timings.duration_seconds, 15);
  EXPECT_DOUBLE_EQ(timings.tpot_seconds, 2);
}

TEST(StepEngineEndTest, AFailedChunkEndsItsRequestOnly) {
  Harness harness;
  const EngineRequest good = GreedyRequest("good", 10), bad = GreedyRequest("bad!", 10);
  auto good_recorder = harness.Submit(good), bad_recorder = harness.Submit(bad);
  harness.model->fails = [](const SequenceChunk& chunk) {
    const bool fails = chunk.phase == Phase::kDecode && chunk.kv->length == 6 && chunk.sequence == SequenceId(2);
    return fails ? absl::DataLossError("layer 3, expert 5: wrong checksum") : absl::OkStatus();
  };
  harness.RunAll();
  EXPECT_EQ(bad_recorder->finish->status, absl::DataLossError("layer 3, expert 5: wrong checksum"));
  EXPECT_EQ(bad_recorder->infos.size(), 3u);
  ExpectAnswer(*good_recorder, Reference(good));
  auto again = harness.Submit(bad);
  harness.model->fails = nullptr;
  harness.RunAll();
  ExpectAnswer(*again, Reference(bad));
  harness.ExpectClean();
}

TEST(StepEngineEndTest, DrainingRefusesAndGoesOn) {
  HarnessOptions options;
  options.engine.max_running = 1;
  Harness harness(options);
  auto running = harness.Submit(GreedyRequest("p", 5)), waiting = harness.Submit(GreedyRequest("p", 5));
  harness.engine->RunOneStep();
  harness.engine->Drain(absl::UnavailableError("draining"));
  const absl::Status refused = harness.SubmitError(GreedyRequest("p", 5));
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("draining"));
  EXPECT_FALSE(harness.engine->Idle());
  harness.RunAll();
  EXPECT_TRUE(running->finish->status.ok());
  EXPECT_TRUE(waiting->finish->status.ok());
  harness.ExpectClean();
}

TEST(StepEngineEndTest, StopEndsEveryoneOnce) {
  HarnessOptions options;
  options.engine.max_running = 1;
  Harness harness(options);
  EngineRequest in_session = GreedyRequest("p", 1);
  in_session.session_id = "s";
  harness.Submit(in_session);
  harness.RunAll();
  auto running = harness.Submit(GreedyRequest("p", 20)), waiting = harness.Submit(GreedyRequest("p", 5));
  harness.engine->RunOneStep();
  auto unseen = harness.Submit(GreedyRequest("p", 5));
  harness.engine->Stop(absl::UnavailableError("shutting down"));
  harness.engine->Stop(absl::InternalError("twice"));
  for (const auto& recorder : {running, waiting, unseen})
    EXPECT_EQ(recorder->finish->status, absl::UnavailableError("shutting down"));
  EXPECT_TRUE(running->started);
  EXPECT_FALSE(waiting->started);
  EXPECT_EQ(harness.SubmitError(GreedyRequest("p", 5)).code(), absl::StatusCode::kUnavailable);
  harness.ExpectClean();
}

TEST(StepEngineEndTest, TheHeartbeatIsTheLastTurn) {
  Harness harness;
  harness.clock.AdvanceNanos(5);
  harness.engine->RunOneStep();
  EXPECT_EQ(harness.engine->Stats().heartbeat_nanos, 5);
  harness.clock.AdvanceNanos(2);
  harness.engine->RunOneStep();
  EXPECT_EQ(harness.engine->Stats().heartbeat_nanos, 7);
}

// A step may take minutes where experts come from a slow disk: what happens meanwhile counts from the next layer on.
TEST(StepEngineEndTest, TheHeartbeatIsSeenWithinAStep) {
  Harness harness;
  harness.Submit(GreedyRequest("p", 1));
  harness.model->on_forward = [&](auto) { harness.clock.AdvanceNanos(3); };
  harness.model->logits = [&](std::span<const TokenId> history, std::span<float> logits) {
    EXPECT_EQ(harness.engine->Stats().heartbeat_nanos, 3);
    FakeLogits(history, logits);
  };
  harness.RunAll();
}

TEST(StepEngineEndTest, ACancellationIsSeenWithinAStep) {
  Harness harness;
  const EngineRequest request = GreedyRequest("gone", 20), other = GreedyRequest("stays", 20);
  auto gone = harness.Submit(request), stays = harness.Submit(other);
  for (int step = 0; step < 3; ++step) harness.engine->RunOneStep();
  harness.model->on_forward = [&](auto) { harness.engine->Cancel(harness.ids[request.name], absl::CancelledError("gone")); };
  harness.engine->RunOneStep();
  ASSERT_TRUE(gone->finish);
  EXPECT_EQ(gone->finish->status, absl::CancelledError("gone"));
  EXPECT_EQ(gone->infos.size(), 3u) << "of this step it got nothing";
  EXPECT_EQ(stays->infos.size(), 4u);
  harness.model->on_forward = nullptr;
  harness.RunAll();
  ExpectAnswer(*stays, Reference(other));
  harness.ExpectClean();
}

TEST(StepEngineEndTest, ACancelledStepLeavesItsSessionAsItWas) {
  HarnessOptions options;
  options.engine.max_step_tokens = 4;
  Harness harness(options);
  EngineRequest first = GreedyRequest("begins", 4);
  first.session_id = "s";
  const auto begun = harness.Submit(first);
  harness.RunAll();
  EngineRequest broken = GreedyRequest("is broken off", 9);
  broken.session_id = "s";
  harness.Submit(broken);
  harness.engine->RunOneStep();
  harness.model->on_forward = [&](auto) { harness.engine->Cancel(harness.ids[broken.name], absl::CancelledError("gone")); };
  harness.engine->RunOneStep();
  harness.model->on_forward = nullptr;
  EXPECT_TRUE(harness.engine->Idle());

  EngineRequest next = GreedyRequest("goes on", 9);
  next.session_id = "s";
  const auto went_on = harness.Submit(next);
  harness.RunAll();
  EngineRequest whole = next;
  whole.session_id.clear();
  whole.prompt = first.prompt;
  const std::vector<TokenId> answer = begun->tokens();
  whole.prompt.insert(whole.prompt.end(), answer.begin(), answer.end());
  whole.prompt.insert(whole.prompt.end(), next.prompt.begin(), next.prompt.end());
  EXPECT_EQ(went_on->tokens(), Reference(whole).tokens);
}

TEST(StepEngineEndTest, TheTimeLimitIsSeenWithinAStep) {
  Harness harness;
  EngineRequest request = GreedyRequest("p", 20);
  request.stopping.time_limit_seconds = 1;
  auto recorder = harness.Submit(request);
  harness.engine->RunOneStep();
  harness.model->on_forward = [&](auto) { harness.clock.AdvanceNanos(kSecond); };
  harness.engine->RunOneStep();
  ASSERT_TRUE(recorder->finish);
  EXPECT_TRUE(recorder->finish->status.ok());
  EXPECT_EQ(recorder->finish->reason, FinishReason::kTimeLimit);
  EXPECT_EQ(recorder->infos.size(), 1u);
  harness.ExpectClean();
}

TEST(StepEngineEndTest, WhatWasLentGoesBackOnceNothingIsLeft) {
  Harness harness;
  const auto first = harness.Submit(GreedyRequest("abc", 5)), second = harness.Submit(GreedyRequest("abcdef", 9));
  while (harness.engine->RunOneStep()) EXPECT_EQ(harness.provider.given_back, 0);
  EXPECT_EQ(harness.provider.given_back, 1);
  EXPECT_TRUE(first->finish && second->finish);
  harness.engine->RunOneStep();
  EXPECT_EQ(harness.provider.given_back, 2) << "of the turns in which there is nothing to do, too";
}

TEST(StepEngineEndTest, OptionsOutOfRangeAreNamed) {
  const std::pair<std::string, std::function<void(StepEngineOptions&)>> cases[] = {
      {"max_context is 1", [](auto& o) { o.max_context = 1; }},
      {"4096 positions", [](auto& o) { o.max_context = 5000; }},
      {"max_new_tokens is 0", [](auto& o) { o.max_new_tokens = 0; }},
      {"max_running is 0", [](auto& o) { o.max_running = 0; }},
      {"queue_capacity is -1", [](auto& o) { o.queue_capacity = -1; }},
      {"max_step_tokens is 3, at least 4", [](auto& o) { o.max_step_tokens = 3; }},
      {"max_kept_sessions is -1", [](auto& o) { o.max_kept_sessions = -1; }},
      {"pages of keys and values is 64, at least 125", [](auto& o) { o.max_context = 2000; }},
  };
  Harness harness;
  for (const auto& [message, change] : cases) {
    StepEngineOptions options = HarnessOptions{}.engine;
    change(options);
    auto made = StepEngine::Create(options, {*harness.model, harness.provider, *harness.kv, ByteTokenizer(), harness.clock});
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(made.status().message()), HasSubstr(message));
  }
}

TEST(StepEngineEndTest, MemoryGrowsWithWhatIsAllowed) {
  StepEngineOptions small = HarnessOptions{}.engine;
  const uint64_t base = StepEngine::MemoryBytes(small, kVocabulary);
  EXPECT_GE(StepEngine::MemoryBytes(small, 151936), base + (151936 - kVocabulary) * 20);
  StepEngineOptions more = small;
  more.queue_capacity += 10;
  EXPECT_GE(StepEngine::MemoryBytes(more, kVocabulary), base + 10 * 96 * sizeof(TokenId));
  more = small;
  more.max_kept_sessions += 10;
  EXPECT_GE(StepEngine::MemoryBytes(more, kVocabulary), base + 10 * 96 * sizeof(TokenId));
}

}  // namespace step_engine_end_test
}  // namespace moed
