// Tenants and priorities in the running engine: who is computed when, and that nobody's tokens change by it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/retry_after.h"
#include "tests/engine/engine_harness.h"

namespace moed {
namespace step_engine_tenant_test {

EngineRequest Of(std::string_view tenant, EngineRequest request, const TenantLimits& limits = {}) {
  request.tenant = tenant;
  request.tenant_limits = limits;
  return request;
}

HarnessOptions Options(int max_running, int queue_capacity) {
  HarnessOptions options;
  options.engine.max_running = max_running;
  options.engine.queue_capacity = queue_capacity;
  return options;
}

int StepsUntilStarted(Harness& harness, const Recorder& recorder) {
  int steps = 0;
  while (!recorder.started && steps < 10000) harness.engine->RunOneStep(), ++steps;
  return steps;
}

const TenantInfo& Tenant(const std::vector<TenantInfo>& list, std::string_view name) {
  const auto found = std::find_if(list.begin(), list.end(), [&](const TenantInfo& info) { return info.name == name; });
  EXPECT_NE(found, list.end()) << name;
  return *found;
}

TEST(StepEngineTenantTest, AHundredRequestsDoNotDelayAnotherTenantsOne) {
  Harness harness(Options(4, 400));
  std::vector<std::pair<std::shared_ptr<Recorder>, Expected>> flood;
  for (int i = 0; i < 100; ++i) {
    const EngineRequest request = GreedyRequest(std::string(1 + i % 20, static_cast<char>('a' + i % 7)), 40);
    flood.emplace_back(harness.Submit(Of("many", request)), Reference(request));
  }
  for (int step = 0; step < 10; ++step) harness.engine->RunOneStep();
  for (int i = 0; i < 3; ++i) {
    const EngineRequest request = GreedyRequest("hello " + std::to_string(i), 10);
    const auto single = harness.Submit(Of("single", request));
    EXPECT_EQ(StepsUntilStarted(harness, *single), 1) << "its share of the places is one: somebody gives way";
    for (int step = 0; step < 9; ++step) harness.engine->RunOneStep();
    ASSERT_TRUE(single->finish);
    harness.engine->RunOneStep();  // who gave way goes on
    ExpectAnswer(*single, Reference(request));
  }
  harness.RunAll();
  for (const auto& [recorder, expected] : flood) ExpectAnswer(*recorder, expected);
  EXPECT_EQ(harness.engine->Stats().preemptions, 3u);
  EXPECT_EQ(harness.engine->Stats().recomputed_tokens, 0u) << "who gave way went on where it was";
  harness.ExpectClean();
}

// Whoever gives its place does not get it back at once, though its tenant has had less.
TEST(StepEngineTenantTest, APlaceThatIsGivenGoesToTheOther) {
  HarnessOptions options = Options(2, 8);
  options.engine.max_context = 512;
  options.engine.max_new_tokens = 300;
  options.pages = 128;
  Harness harness(options);
  std::vector<std::pair<std::shared_ptr<Recorder>, Expected>> answers;
  for (const char* prompt : {"a", "b"}) {
    const EngineRequest request = GreedyRequest(prompt, 300);
    answers.emplace_back(harness.Submit(Of("long", request)), Reference(request, {}, 512, 300));
  }
  harness.engine->RunOneStep();
  const auto prompt = harness.Submit(Of("other", GreedyRequest(std::string(400, 'p'), 1)));
  while (!prompt->finish) harness.engine->RunOneStep();
  harness.engine->RunOneStep();  // who gave way goes on
  const auto single = harness.Submit(Of("other", GreedyRequest("q", 3)));
  EXPECT_EQ(StepsUntilStarted(harness, *single), 1);
  harness.RunAll();
  EXPECT_LE(harness.engine->Stats().preemptions, 2u);
  for (const auto& [recorder, expected] : answers) ExpectAnswer(*recorder, expected);
  harness.ExpectClean();
}

// Prompts and texts that are scored hold no place either. What was scored is not scored again once all of a prompt is.
TEST(StepEngineTenantTest, WhoseTokensAreScoredGivesWay) {
  for (const RequestKind kind : {RequestKind::kGenerate, RequestKind::kScore}) {
    const auto long_one = [&](char first) {
      EngineRequest request = GreedyRequest(std::string(60, first) + "gh", 30);
      if (first == 'b') request.kind = kind;
      request.prompt_logprobs = request.kind == RequestKind::kGenerate;
      request.logprobs = true;
      request.top_logprobs = 2;
      return request;
    };
    Harness alone(Options(2, 8)), harness(Options(2, 8));
    std::vector<std::pair<std::shared_ptr<Recorder>, std::shared_ptr<Recorder>>> both;
    for (const char first : {'a', 'b'}) {
      both.emplace_back(harness.Submit(Of("many", long_one(first))), alone.Submit(Of("many", long_one(first))));
    }
    alone.RunAll();
    for (int step = 0; step < (kind == RequestKind::kGenerate ? 12 : 6); ++step) harness.engine->RunOneStep();
    ASSERT_FALSE(both.back().first->finish);
    const auto single = harness.Submit(Of("single", GreedyRequest("q", 5)));
    EXPECT_EQ(StepsUntilStarted(harness, *single), 1);
    harness.RunAll();
    EXPECT_EQ(harness.engine->Stats().preemptions, 1u);
    EXPECT_EQ(harness.engine->Stats().recomputed_tokens > 0, kind == RequestKind::kScore) << "a prompt is scored once";
    for (const auto& [recorder, expected] : both) {
      EXPECT_EQ(recorder->tokens(), expected->tokens());
      EXPECT_EQ(recorder->finish->prompt_logprobs, expected->finish->prompt_logprobs);
      EXPECT_EQ(recorder->finish->prompt_top, expected->finish->prompt_top);
    }
    harness.ExpectClean();
  }
}

TEST(StepEngineTenantTest, WithoutAPrefixCacheItWaitsForTheFirstEnd) {
  HarnessOptions options = Options(2, 400);
  options.engine.prefix_cache = false;
  Harness harness(options);
  for (int i = 0; i < 100; ++i) harness.Submit(Of("many", GreedyRequest("p", i == 1 ? 20 : 40)));
  harness.engine->RunOneStep();
  const auto single = harness.Submit(Of("single", GreedyRequest("q", 5)));
  EXPECT_EQ(StepsUntilStarted(harness, *single), 20);
  EXPECT_EQ(harness.engine->Stats().preemptions, 0u);
  harness.RunAll();
}

TEST(StepEngineTenantTest, BacklogsAreServedByWeight) {
  Harness harness(Options(4, 1000));
  for (int i = 0; i < 150; ++i) {
    harness.Submit(Of("one", GreedyRequest("a", 8), {.weight = 1}));
    harness.Submit(Of("three", GreedyRequest("b", 8), {.weight = 3}));
  }
  for (int step = 0; step < 200; ++step) harness.engine->RunOneStep();
  const std::vector<TenantInfo> tenants = harness.engine->ListTenants();
  const auto one = static_cast<double>(Tenant(tenants, "one").generated_tokens);
  const auto three = static_cast<double>(Tenant(tenants, "three").generated_tokens);
  EXPECT_NEAR(three / one, 3, .2);
  EXPECT_NEAR(one + three, 4 * 200, 10) << "no place stayed empty";
  harness.RunAll();
}

TEST(StepEngineTenantTest, PromptsShareAStepByWeight) {
  Harness harness(Options(4, 32));
  std::vector<std::vector<size_t>> steps;
  harness.model->on_forward = [&](std::span<SequenceChunk> step) {
    std::vector<size_t> tokens;
    for (const SequenceChunk& chunk : step) tokens.push_back(chunk.tokens.size());
    steps.push_back(tokens);
  };
  harness.Submit(Of("one", GreedyRequest(std::string(40, 'x'), 2), {.weight = 1}));
  harness.Submit(Of("three", GreedyRequest(std::string(40, 'y'), 2), {.weight = 3}));
  harness.engine->RunOneStep();
  harness.engine->RunOneStep();
  EXPECT_THAT(steps, testing::Each(testing::ElementsAre(4u, 12u)));
  harness.RunAll();
}

TEST(StepEngineTenantTest, LowPriorityIsServedBesideAnEndlessStreamOfHigh) {
  Harness harness(Options(1, 64));
  const auto submit = [&](Priority priority) {
    EngineRequest request = GreedyRequest("p", 4);
    request.priority = priority;
    return harness.Submit(std::move(request));
  };
  std::vector<std::shared_ptr<Recorder>> high{submit(Priority::kHigh), submit(Priority::kHigh)};
  const auto low = submit(Priority::kLow);
  while (!low->finish && high.size() < 100) {
    harness.engine->RunOneStep();
    if (high[high.size() - 2]->finish) high.push_back(submit(Priority::kHigh));
  }
  EXPECT_TRUE(low->finish);
  EXPECT_LE(high.size(), 20u) << "a share of 1 beside 16";
  harness.RunAll();
}

TEST(StepEngineTenantTest, HighPriorityRunsBeforeWhatCameEarlier) {
  Harness harness(Options(1, 64));
  std::string order;
  const auto submit = [&](Priority priority, char name) {
    EngineRequest request = GreedyRequest("p", 4);
    request.priority = priority;
    harness.Submit(std::move(request))->on_finish = [&order, name] { order += name; };
  };
  submit(Priority::kNormal, '1');
  harness.engine->RunOneStep();
  submit(Priority::kNormal, '2');
  submit(Priority::kLow, '3');
  submit(Priority::kHigh, '4');
  harness.RunAll();
  EXPECT_EQ(order, "1432") << "high has had nothing yet, low neither, and normal has";
}

TEST(StepEngineTenantTest, NoTenantRunsMoreThanItMay) {
  Harness harness(Options(4, 64));
  for (int i = 0; i < 8; ++i) harness.Submit(Of("few", GreedyRequest("p", 10), {.max_running = 2}));
  harness.engine->RunOneStep();
  EXPECT_EQ(harness.engine->Stats().running, 2);
  const auto other = harness.Submit(Of("other", GreedyRequest("q", 10)));
  EXPECT_EQ(StepsUntilStarted(harness, *other), 1);
  EXPECT_EQ(Tenant(harness.engine->ListTenants(), "few").running, 2);
  EXPECT_EQ(Tenant(harness.engine->ListTenants(), "few").waiting, 6);
  harness.RunAll();
  harness.ExpectClean();
}

// Where room is short sessions of who holds more than its share lose theirs first, however lately they were used.
TEST(StepEngineTenantTest, WhoHoldsMoreThanItsShareMakesRoom) {
  for (const bool limited : {true, false}) {
    HarnessOptions options = Options(2, 8);
    options.pages = 8;  // of 16 tokens
    options.engine.prefix_cache = false;
    Harness harness(options);
    const TenantLimits limits = limited ? TenantLimits{.kv_percent = 40} : TenantLimits{};
    const auto talk = [&](std::string_view tenant, const std::string& session, int tokens) {
      EngineRequest request = GreedyRequest(std::string(tokens - 4, 'p'), 4);
      request.session_id = session;
      harness.Submit(Of(tenant, std::move(request), tenant == "much" ? limits : TenantLimits{}));
      harness.RunAll();
    };
    talk("little", "little/old", 32);
    talk("much", "much/1", 32);
    talk("much", "much/2", 32);
    harness.Submit(Of("third", GreedyRequest(std::string(40, 'q'), 4)));
    harness.RunAll();
    std::map<std::string, int> computed;
    for (const SessionInfo& session : harness.engine->ListSessions(10)) computed[session.name] = session.computed;
    EXPECT_EQ(computed["little/old"] > 0, limited);
    EXPECT_EQ(computed["much/1"] > 0, !limited);
    EXPECT_GT(computed["much/2"], 0) << "it is within its share again";
  }
}

// What a tenant beyond its share is only remembered for goes before what others are, however long ago theirs was used.
TEST(StepEngineTenantTest, WhoIsRememberedForMoreThanItsShareIsForgottenFirst) {
  for (const bool limited : {true, false}) {
    HarnessOptions options = Options(2, 8);
    options.pages = 8;  // of 16 tokens
    Harness harness(options);
    const auto cached = [&](std::string_view tenant, char letter, const TenantLimits& limits = {}) {
      const auto recorder = harness.Submit(Of(tenant, GreedyRequest(std::string(32, letter), 1), limits));
      harness.RunAll();
      return recorder->cached_tokens;
    };
    const TenantLimits limits = limited ? TenantLimits{.kv_percent = 50} : TenantLimits{};
    EXPECT_EQ(cached("little", 'a'), 0);
    for (const char letter : {'b', 'c', 'd', 'e', 'f'}) EXPECT_EQ(cached("much", letter, limits), 0);
    EXPECT_EQ(cached("little", 'a') > 0, limited);
    EXPECT_GT(cached("much", 'f', limits), 0) << "of its share it keeps what was used last";
    EXPECT_EQ(cached("much", 'b', limits), 0);
    harness.ExpectClean();
  }
}

// The sessions that are kept are shared: one tenant's many displace its own.
TEST(StepEngineTenantTest, ManySessionsOfOneLeaveOthersTheirs) {
  Harness harness(Options(2, 8));
  const auto talk = [&](const std::string& tenant, int session) {
    EngineRequest request = GreedyRequest("p", 1);
    request.session_id = tenant + std::to_string(session);
    harness.Submit(Of(tenant, std::move(request)));
    harness.RunAll();
  };
  for (int i = 0; i < 3; ++i) talk("quiet", i);
  for (int i = 0; i < 20; ++i) talk("loud", i);
  std::vector<std::string> kept;
  for (const SessionInfo& session : harness.engine->ListSessions(100)) kept.push_back(session.name);
  EXPECT_THAT(kept, testing::ElementsAre("loud19", "loud18", "loud17", "loud16", "loud15", "quiet2", "quiet1", "quiet0"));
  for (int i = 3; i < 20; ++i) talk("quiet", i);
  kept.clear();
  for (const SessionInfo& session : harness.engine->ListSessions(100)) kept.push_back(session.name);
  EXPECT_THAT(kept, testing::ElementsAre("quiet19", "quiet18", "quiet17", "quiet16", "loud19", "loud18", "loud17", "loud16"));
}

TEST(StepEngineTenantTest, ARequestTakesNoLongerThanAnyMay) {
  HarnessOptions options = Options(2, 8);
  options.engine.max_request_seconds = 2;
  options.engine.max_step_tokens = 2;
  Harness harness(options);
  EngineRequest shorter = GreedyRequest("p", 60);
  shorter.stopping.time_limit_seconds = 1;
  EngineRequest longer = GreedyRequest("q", 60);
  longer.stopping.time_limit_seconds = 60;
  const auto first = harness.Submit(std::move(shorter)), second = harness.Submit(std::move(longer));
  harness.engine->RunOneStep();
  harness.clock.AdvanceNanos(1'500'000'000);
  harness.engine->RunOneStep();
  ASSERT_TRUE(first->finish);
  EXPECT_FALSE(second->finish);
  EngineRequest score = GreedyRequest(std::string(40, 's'), 1);
  score.kind = RequestKind::kScore;
  const auto scored = harness.Submit(std::move(score));
  harness.engine->RunOneStep();
  harness.clock.AdvanceNanos(2'500'000'000);
  harness.engine->RunOneStep();
  ASSERT_TRUE(second->finish);
  EXPECT_TRUE(second->finish->status.ok());
  EXPECT_EQ(second->finish->reason, FinishReason::kTimeLimit);
  ASSERT_TRUE(scored->finish);
  EXPECT_TRUE(absl::IsDeadlineExceeded(scored->finish->status));
  EXPECT_THAT(std::string(scored->finish->status.message()), testing::HasSubstr("--max-request-seconds"));
  harness.ExpectClean();
}

TEST(StepEngineTenantTest, RefusalsAndPositionsGoByTheMeasuredRate) {
  Harness harness(Options(1, 2));
  harness.model->on_forward = [&](std::span<SequenceChunk>) { harness.clock.AdvanceNanos(1'000'000'000); };
  harness.Submit(GreedyRequest("abcd", 7));
  const absl::Status unmeasured = [&] {
    harness.Submit(GreedyRequest("b", 1));
    harness.Submit(GreedyRequest("b", 1));
    return harness.SubmitError(GreedyRequest("b", 1));
  }();
  EXPECT_TRUE(absl::IsResourceExhausted(unmeasured));
  EXPECT_EQ(RetryAfterOf(unmeasured), std::nullopt);
  EXPECT_EQ(harness.engine->EstimateQueue("", Priority::kNormal, 4).wait_seconds, std::nullopt);
  harness.RunAll();
  QueueEstimate estimate = harness.engine->EstimateQueue("", Priority::kNormal, 4);
  EXPECT_EQ(estimate.position, 0);
  EXPECT_EQ(estimate.wait_seconds, 0);
  ASSERT_TRUE(estimate.prefill_seconds);
  EXPECT_NEAR(*estimate.prefill_seconds, 1, .01) << "four tokens went in one step of a second";
  EXPECT_EQ(harness.engine->EstimateQueue("", Priority::kNormal, 5).prefill_seconds, std::nullopt);

  for (int i = 0; i < 3; ++i) harness.Submit(GreedyRequest("b", 5));
  harness.engine->RunOneStep();
  const double seconds_per_end = harness.engine->Stats().seconds_per_end;
  EXPECT_GT(seconds_per_end, 1);
  EXPECT_LT(seconds_per_end, 12);
  estimate = harness.engine->EstimateQueue("", Priority::kNormal, 4);
  EXPECT_EQ(estimate.position, 2);
  EXPECT_EQ(harness.engine->EstimateQueue("", Priority::kHigh, 4).position, 0) << "no other one of its priority waits";
  EXPECT_NEAR(*estimate.wait_seconds, 3 * seconds_per_end, 1e-6);
  EXPECT_NEAR(*RetryAfterOf(harness.SubmitError(GreedyRequest("b", 1))), seconds_per_end, .01);
  harness.RunAll();
}

// One slot, a step of a second for up to 16 tokens: 16 tokens of prompt a second at best.
struct TimedHarness : Harness {
  explicit TimedHarness(const HarnessOptions& options) : Harness(options) {
    model->on_forward = [this](std::span<SequenceChunk>) { clock.AdvanceNanos(1'000'000'000); };
  }
  absl::Status StatusOf(EngineRequest request, double seconds) {
    request.deadline_nanos = clock.NowNanos() + static_cast<int64_t>(seconds * 1e9);
    const auto recorder = Submit(std::move(request));
    engine->RunOneStep();
    if (!recorder->finish || recorder->finish->status.ok()) return absl::OkStatus();
    EXPECT_FALSE(recorder->started) << "nothing was computed for it";
    return recorder->finish->status;
  }
};

TEST(StepEngineDeadlineTest, WhoCannotBeAnsweredInTimeIsToldAtOnce) {
  TimedHarness harness(Options(1, 8));
  EXPECT_TRUE(harness.StatusOf(GreedyRequest(std::string(64, 'a'), 2), .001).ok()) << "nothing is measured";
  harness.RunAll();
  const absl::Status late = harness.StatusOf(GreedyRequest(std::string(64, 'b'), 2), 1.5);
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  EXPECT_THAT(std::string(late.message()), testing::HasSubstr("the deadline is in 1.5 s"));
  EXPECT_THAT(std::string(late.message()), testing::HasSubstr("for 64 tokens of the prompt"));
  EXPECT_TRUE(harness.StatusOf(GreedyRequest(std::string(64, 'c'), 2), 2.5).ok()) << "it is doubted, and tried";
  harness.RunAll();
  EXPECT_TRUE(harness.StatusOf(GreedyRequest(std::string(64, 'c'), 2), 1.5).ok()) << "most of it is known";
  harness.RunAll();
  harness.ExpectClean();
}

TEST(StepEngineDeadlineTest, WhoWaitsTooLongMayComeAgain) {
  TimedHarness harness(Options(1, 8));
  harness.Submit(GreedyRequest("a", 8));
  harness.RunAll();
  for (int i = 0; i < 4; ++i) harness.Submit(GreedyRequest("b", 8));
  harness.engine->RunOneStep();
  const absl::Status late = harness.StatusOf(GreedyRequest("c", 1), 8);
  EXPECT_TRUE(absl::IsResourceExhausted(late)) << late;
  EXPECT_GT(*RetryAfterOf(late), 16);
  EXPECT_TRUE(harness.StatusOf(Of("other", GreedyRequest("c", 1)), 8).ok()) << "another tenant's is next";
  harness.RunAll();
  harness.ExpectClean();
}

TEST(StepEngineDeadlineTest, ALongRequestDoesNotSpeakForThoseThatCanOnlyBeShort) {
  TimedHarness harness(Options(1, 8));
  harness.Submit(GreedyRequest("a", 60));
  harness.RunAll();
  harness.Submit(GreedyRequest("b", 4));
  harness.engine->RunOneStep();
  ASSERT_GT(harness.engine->Stats().seconds_per_end, 40);
  EXPECT_EQ(harness.StatusOf(GreedyRequest("c", 1), 10), absl::OkStatus());
  harness.RunAll();
  harness.ExpectClean();
}

TEST(StepEngineDeadlineTest, ColdExpertsCount) {
  for (const bool exact : {true, false}) {
    HarnessOptions options = Options(1, 8);
    options.cold_seconds = [](int tokens) { return std::optional(tokens * 1.); };
    TimedHarness harness(options);
    EngineRequest request = GreedyRequest("abcdefgh", 1);
    request.fidelity = exact ? Fidelity::Exact() : Fidelity::Fast();
    const absl::Status status = harness.StatusOf(std::move(request), 3);
    EXPECT_EQ(absl::IsDeadlineExceeded(status), exact) << "who may lose experts need not read them: " << status;
    harness.RunAll();
  }
}

}  // namespace step_engine_tenant_test
}  // namespace moed
