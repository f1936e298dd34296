// The loop on its own thread, callers on others.
#include <gtest/gtest.h>

#include <new>
#include <optional>
#include <stdexcept>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "tests/engine/engine_harness.h"

namespace moed {
namespace step_engine_thread_test {

// As many waits of a second would be longer than a test may take.
TEST(StepEngineThreadTest, ATaskWakesAnIdleEngine) {
  Harness harness;
  harness.engine->Start();
  for (int i = 0; i < 1000; ++i) {
    absl::Notification done;
    ASSERT_EQ(harness.engine->BetweenSteps([&] { done.Notify(); }), absl::OkStatus());
    done.WaitForNotification();
  }
  harness.engine->Stop(absl::UnavailableError("the end"));
}

TEST(StepEngineThreadTest, ManyCallersGetTheirAnswers) {
  HarnessOptions options;
  options.pages = 9;
  options.engine.queue_capacity = 100;
  Harness harness(options);
  harness.engine->Start();
  constexpr int kThreads = 4, kRequests = 12;
  struct Call {
    EngineRequest request;
    std::shared_ptr<Recorder> recorder = std::make_shared<Recorder>();
    absl::Notification done;
  };
  std::vector<std::unique_ptr<Call>> calls;
  for (int i = 0; i < kThreads * kRequests; ++i) {
    calls.push_back(std::make_unique<Call>());
    Call& call = *calls.back();
    call.request = GreedyRequest("prompt " + std::to_string(i), 1 + i % 30);
    call.recorder->on_finish = [&call] { call.done.Notify(); };
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t * kRequests; i < (t + 1) * kRequests; ++i) {
        Call& call = *calls[i];
        auto id = harness.engine->Submit(call.request, call.recorder);
        ASSERT_TRUE(id.ok()) << id.status();
        if (i % 5 == 0) harness.engine->Cancel(*id, absl::CancelledError("changed my mind"));
        if (i % 3 == 0) call.done.WaitForNotification();
        harness.engine->Stats();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (int i = 0; i < kThreads * kRequests; ++i) {
    calls[i]->done.WaitForNotification();
    const Recorder& recorder = *calls[i]->recorder;
    if (recorder.finish->status.ok()) {
      ExpectAnswer(recorder, Reference(calls[i]->request));
    } else {
      EXPECT_EQ(i % 5, 0);
    }
  }
  harness.engine->Stop(absl::UnavailableError("over"));
  EXPECT_TRUE(harness.provider.live.empty());
  EXPECT_EQ(harness.kv->free_pages(), harness.kv->pages());
}

TEST(StepEngineThreadTest, AnExceptionEndsTheRequestsAndIsTold) {
  auto recorder = std::make_shared<Recorder>();
  std::optional<FinishInfo> finished_before;
  absl::Notification told;  // twice would end the test's process
  HarnessOptions options;
  options.failed = [&](const absl::Status& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInternal);
    finished_before = recorder->finish;
    told.Notify();
  };
  Harness harness(options);
  harness.model->on_forward = [](auto) { throw std::bad_alloc(); };
  ASSERT_TRUE(harness.engine->Submit(GreedyRequest("p", 4), recorder).ok());
  harness.engine->Start();
  told.WaitForNotification();
  ASSERT_TRUE(finished_before);
  EXPECT_EQ(finished_before->status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(harness.SubmitError(GreedyRequest("p", 4)).code(), absl::StatusCode::kUnavailable);
  harness.engine->Stop(absl::UnavailableError("over"));
  harness.ExpectClean();
}

// Somebody waits for each task, also where the engine ends.
TEST(StepEngineThreadTest, ATaskThatThrowsKeepsNoOtherFromRunning) {
  for (const bool stopped_first : {false, true}) {
    Harness harness;
    int run = 0;
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(harness.engine
                      ->BetweenSteps([&run, i] {
                        ++run;
                        if (i < 2) throw std::runtime_error(i == 0 ? "the first" : "the second");
                      })
                      .ok());
    }
    auto recorder = std::make_shared<Recorder>();
    ASSERT_TRUE(harness.engine->Submit(GreedyRequest("p", 4), recorder).ok());
    if (!stopped_first) {
      absl::Notification done;
      recorder->on_finish = [&] { done.Notify(); };
      harness.engine->Start();
      done.WaitForNotification();
    }
    harness.engine->Stop(absl::UnavailableError("over"));
    EXPECT_EQ(run, 3);
    EXPECT_EQ(recorder->finish->status.message(), stopped_first ? "over" : "the engine failed: the first");
    harness.ExpectClean();
  }
}

// Sessions are taken up by callers while the loop looks for pages.
TEST(StepEngineThreadTest, SessionsUnderPressureFromManyCallers) {
  HarnessOptions options;
  options.pages = 6;
  options.engine.max_kept_sessions = 3;
  Harness harness(options);
  harness.engine->Start();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<TokenId> history;
      for (int i = 0; i < 5; ++i) {
        EngineRequest request = GreedyRequest("turn", 6);
        request.name = std::to_string(t) + "/" + std::to_string(i);
        request.session_id = "session " + std::to_string(t);
        request.continues_session = i > 0;
        auto recorder = std::make_shared<Recorder>();
        absl::Notification done;
        recorder->on_finish = [&] { done.Notify(); };
        auto id = harness.engine->Submit(request, recorder);
        if (!id.ok()) {  // four conversations, three are kept
          EXPECT_EQ(id.status().code(), absl::StatusCode::kAborted);
          history.clear();
          request.continues_session = false;
          ASSERT_TRUE(harness.engine->Submit(request, recorder).ok());
        }
        done.WaitForNotification();
        const Expected expected = Reference(request, history);
        ExpectAnswer(*recorder, expected);
        history.insert(history.end(), request.prompt.begin(), request.prompt.end());
        history.insert(history.end(), expected.tokens.begin(), expected.tokens.end());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  harness.engine->Stop(absl::UnavailableError("over"));
  EXPECT_TRUE(harness.provider.live.empty());
  EXPECT_EQ(harness.kv->free_pages(), harness.kv->pages());
}

TEST(StepEngineThreadTest, StopInTheMiddleEndsEveryRequestAndBlocksUntilDone) {
  HarnessOptions options;
  options.failed = [](const absl::Status& error) { ADD_FAILURE() << error; };
  Harness harness(options);
  harness.engine->Start();
  absl::Notification computing, proceed;
  harness.model->on_forward = [&](auto) {
    if (computing.HasBeenNotified()) return;
    computing.Notify();
    proceed.WaitForNotification();
  };
  const EngineRequest request = GreedyRequest("p", 50);
  auto first = harness.Submit(request);
  computing.WaitForNotification();
  auto second = harness.Submit(GreedyRequest("p", 50));
  std::thread stopper([&] { harness.engine->Stop(absl::UnavailableError("first")); });
  // The name is taken as long as the first request lives: ALREADY_EXISTS until Stop has begun.
  while (harness.SubmitError(request).code() != absl::StatusCode::kUnavailable) std::this_thread::yield();
  proceed.Notify();
  stopper.join();
  harness.engine->Stop(absl::UnavailableError("second"));
  for (const auto& recorder : {first, second}) {
    ASSERT_TRUE(recorder->finish);
    EXPECT_EQ(recorder->finish->status, absl::UnavailableError("first"));
  }
  EXPECT_TRUE(harness.engine->Idle());
}

}  // namespace step_engine_thread_test
}  // namespace moed
