#include "tests/engine/scripted_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/synchronization/notification.h"
#include "tests/engine/engine_harness.h"

namespace moed {
namespace scripted_engine_test {

const EngineLimits kLimits{
    .max_context = 64, .max_new_tokens = 20, .max_running = 2, .queue_capacity = 1, .vocabulary = kVocabulary};

EngineRequest Request(const std::string& name) {
  EngineRequest request = GreedyRequest("prompt", 20);
  request.name = name;
  return request;
}

std::shared_ptr<Recorder> SubmitTo(Engine& engine, const EngineRequest& request) {
  auto recorder = std::make_shared<Recorder>();
  auto id = engine.Submit(request, recorder);
  EXPECT_TRUE(id.ok()) << id.status();
  return recorder;
}

TEST(ScriptedEngineTest, OneCharacterAStep) {
  FakeClock clock;
  ScriptedEngine engine(kLimits, clock, [](const EngineRequest&) { return ScriptOfText("h\xc3\xa9!"); });
  auto recorder = SubmitTo(engine, Request("r"));
  EXPECT_TRUE(engine.Step());
  EXPECT_TRUE(recorder->started);
  EXPECT_TRUE(engine.Step());
  EXPECT_EQ(recorder->text, "h");
  EXPECT_EQ(engine.Stats().running, 1);
  EXPECT_TRUE(engine.Step());
  EXPECT_FALSE(engine.Step());
  EXPECT_THAT(recorder->pieces, testing::ElementsAre("h", "\xc3\xa9", "!"));
  ASSERT_TRUE(recorder->finish);
  EXPECT_EQ(recorder->finish->reason, FinishReason::kStop);
  EXPECT_EQ(recorder->finish->completion_tokens, 3);
  EXPECT_EQ(recorder->finish->prompt_tokens, 6);
  EXPECT_TRUE(engine.Idle());
  EXPECT_EQ(engine.Stats().running, 0);
}

TEST(ScriptedEngineTest, DelaysAndErrorsAsTheScriptSays) {
  FakeClock clock;
  ScriptedEngine engine(kLimits, clock, [](const EngineRequest&) {
    Script script = ScriptOfText("a");
    script.queue_steps = 2;
    script.prefill_steps = 1;
    script.finish.status = absl::DataLossError("bad block");
    return script;
  });
  auto recorder = SubmitTo(engine, Request("r"));
  engine.Step();
  engine.Step();
  EXPECT_FALSE(recorder->started);
  engine.Step();
  EXPECT_TRUE(recorder->started);
  engine.Step();
  EXPECT_EQ(recorder->text, "");
  engine.Step();
  EXPECT_EQ(recorder->text, "a");
  EXPECT_EQ(recorder->finish->status, absl::DataLossError("bad block"));
}

TEST(ScriptedEngineTest, RefusesAsTheRealOneDoes) {
  FakeClock clock;
  ScriptedEngine engine(kLimits, clock, [](const EngineRequest&) { return ScriptOfText("abc"); });
  EngineRequest bad = Request("bad");
  bad.sampling.top_p = 7;
  EXPECT_EQ(engine.Submit(bad, nullptr).status().code(), absl::StatusCode::kInvalidArgument);
  EngineRequest in_session = Request("1");
  in_session.session_id = "s";
  SubmitTo(engine, in_session);
  in_session.name = "2";
  EXPECT_EQ(engine.Submit(in_session, nullptr).status().code(), absl::StatusCode::kAborted);
  EXPECT_EQ(engine.Submit(Request("1"), nullptr).status().code(), absl::StatusCode::kAlreadyExists);
  SubmitTo(engine, Request("3"));
  auto waits = SubmitTo(engine, Request("4"));
  EXPECT_EQ(engine.Submit(Request("5"), nullptr).status().code(), absl::StatusCode::kResourceExhausted);
  engine.Step();
  EXPECT_FALSE(waits->started);
  EXPECT_EQ(engine.Stats().waiting, 1);
  engine.Drain(absl::UnavailableError("draining"));
  EXPECT_EQ(engine.Submit(Request("6"), nullptr).status().code(), absl::StatusCode::kUnavailable);
  while (engine.Step()) {
  }
  EXPECT_TRUE(waits->finish->status.ok());
  EXPECT_TRUE(engine.HasSession("s"));
}

TEST(ScriptedEngineTest, CancelTimeLimitLengthAndStop) {
  FakeClock clock;
  ScriptedEngine engine(kLimits, clock, [](const EngineRequest&) { return ScriptOfText("a long answer"); });
  EngineRequest request = Request("time");
  request.stopping.time_limit_seconds = 1;
  auto overdue = SubmitTo(engine, request);
  auto cancelled = SubmitTo(engine, Request("cancelled"));
  engine.Step();
  engine.Step();
  EXPECT_TRUE(engine.Cancel(*engine.FindRequest("cancelled"), absl::CancelledError("no")));
  clock.AdvanceNanos(1'000'000'000);
  EXPECT_FALSE(engine.Step());
  EXPECT_EQ(overdue->finish->reason, FinishReason::kTimeLimit);
  EXPECT_EQ(cancelled->finish->status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(cancelled->text, "a");

  request = Request("length");
  request.stopping.max_new_tokens = 3;
  auto cut = SubmitTo(engine, request);
  while (engine.Step()) {
  }
  EXPECT_EQ(cut->text, "a l");
  EXPECT_EQ(cut->finish->reason, FinishReason::kLength);

  auto stopped = SubmitTo(engine, Request("stopped"));
  engine.Step();
  engine.Stop(absl::UnavailableError("over"));
  EXPECT_EQ(stopped->finish->status, absl::UnavailableError("over"));
}

TEST(ScriptedEngineTest, RunsFreely) {
  ScriptedEngine engine(kLimits, Clock::Real(), [](const EngineRequest&) { return ScriptOfText("free"); });
  engine.RunFreely(10000);
  absl::Notification done;
  auto recorder = std::make_shared<Recorder>();
  recorder->on_finish = [&] { done.Notify(); };
  ASSERT_TRUE(engine.Submit(Request("r"), recorder).ok());
  done.WaitForNotification();
  EXPECT_EQ(recorder->text, "free");
  engine.Stop(absl::UnavailableError("over"));
}

}  // namespace scripted_engine_test
}  // namespace moed
