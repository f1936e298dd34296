// Which calls are taken, and every way in which one ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "core/base/retry_after.h"
#include "server/wire/error_details.h"
#include "tests/server/server_harness.h"

namespace moed {
namespace {

using moe::v1::GenerateRequest;
using moe::v1::GenerateResponse;

TEST(AdmissionTest, AFullQueueIsResourceExhaustedWithRetryInfo) {
  ServerHarness server;  // two run, two wait
  std::vector<std::unique_ptr<OpenStream>> streams;
  for (int i = 0; i < 4; ++i) streams.push_back(std::make_unique<OpenStream>(server, TextRequest("x")));
  const grpc::Status status = Generate(server, TextRequest("x"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_GT(RetrySeconds(status), 0);
  EXPECT_EQ(server.Metric(R"(moe_requests_rejected_total{reason="queue_full"})"), 1);
  EXPECT_EQ(server.Metric("moe_requests_waiting"), 4) << "the engine did not take a step yet";
  EXPECT_EQ(streams[3]->QueuePosition(), 3);
  server.RunFreely();
  for (auto& stream : streams) EXPECT_TRUE(stream->ReadAll().ok());
}

TEST(AdmissionTest, WhoWaitsIsToldHowLong) {
  ServerHarness server;
  const auto seconds = [](const OpenStream& stream) {
    const auto& metadata = stream.context.GetServerInitialMetadata();
    const auto found = metadata.find(kQueueSecondsKey);
    return found == metadata.end() ? std::string() : std::string(found->second.data(), found->second.size());
  };
  OpenStream unmeasured(server, TextRequest("x"));
  EXPECT_EQ(seconds(unmeasured), "");
  server.engine().Measure(1.5, 1);
  OpenStream second(server, TextRequest("x")), third(server, TextRequest("x"));
  EXPECT_EQ(seconds(second), "0.000") << "it has a place";
  EXPECT_EQ(third.QueuePosition(), 2);
  EXPECT_EQ(seconds(third), "4.500");
  server.RunFreely();
  for (OpenStream* stream : {&unmeasured, &second, &third}) EXPECT_TRUE(stream->ReadAll().ok());
}

TEST(AdmissionTest, RetryInfoIsWhatTheEngineSays) {
  const grpc::Status told = ToGrpcStatus(RetryAfter(absl::ResourceExhaustedError("full"), 7.5));
  EXPECT_DOUBLE_EQ(RetrySeconds(told), 7.5);
  EXPECT_EQ(told.error_details().find(kRetryAfterPayload), std::string::npos);
  EXPECT_EQ(RetrySeconds(ToGrpcStatus(absl::ResourceExhaustedError("a budget too small"))), -1) << "waiting does not help";
}

TEST(AdmissionTest, BusySessionsAndNamesInUse) {
  ServerHarness server;
  GenerateRequest request = TextRequest("x");
  request.set_request_id("name");
  request.set_session_id("session");
  OpenStream first(server, request);
  EXPECT_EQ(Generate(server, request).error_code(), grpc::StatusCode::ALREADY_EXISTS);
  request.set_request_id("other");
  EXPECT_EQ(Generate(server, request).error_code(), grpc::StatusCode::ABORTED);
  server.RunFreely();
  EXPECT_TRUE(first.ReadAll().ok());
}

TEST(AdmissionTest, UnavailableWhileLoadingAndWhileDrainingWithHealthToMatch) {
  ServerHarness server({.load = false});
  const auto channel = server.Channel();
  for (const char* service : {"", "moe.v1.Inference"}) EXPECT_EQ(CheckHealth(channel, service), Health::kNotServing) << service;
  EXPECT_EQ(HttpGet(server.metrics_address(), "/readyz").code, 503);
  EXPECT_EQ(Generate(server, TextRequest("x")).error_code(), grpc::StatusCode::UNAVAILABLE);
  server.Load();
  for (const char* service : {"", "moe.v1.Inference"}) EXPECT_EQ(CheckHealth(channel, service), Health::kServing) << service;
  EXPECT_EQ(CheckHealth(channel, "no.such.Service"), Health::kUnknown);
  EXPECT_EQ(HttpGet(server.metrics_address(), "/readyz").code, 200);

  OpenStream running(server, TextRequest("x"));
  grpc::ClientContext context;
  moe::v1::DrainResponse drained;
  ASSERT_TRUE(server.control().Drain(&context, {}, &drained).ok());
  EXPECT_EQ(drained.waiting(), 1);
  grpc::ClientContext call;
  moe::v1::GenerateResponse nothing;
  const grpc::Status refused = server.inference().Generate(&call, TextRequest("x"), &nothing);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(call.GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1) << "gRPC does not ask again by itself";
  EXPECT_EQ(refused.error_message(), "the server is draining: it takes no new requests") << "it may be undrained";
  EXPECT_EQ(HttpGet(server.metrics_address(), "/readyz").code, 503);
  EXPECT_EQ(HttpGet(server.metrics_address(), "/healthz").code, 200) << "alive, though draining";
  EXPECT_EQ(server.Metric(R"(moe_requests_rejected_total{reason="not_ready"})"), 1);
  EXPECT_EQ(server.Metric(R"(moe_requests_rejected_total{reason="draining"})"), 1);
  server.RunFreely();
  EXPECT_TRUE(running.ReadAll().ok()) << "what runs goes on";
}

TEST(EndTest, CancellationMidStreamReachesTheEngine) {
  ServerHarness server({.script = [](const EngineRequest&) { return ScriptOfText(std::string(40, 'x')); }});
  OpenStream stream(server, TextRequest("x"));
  for (int i = 0; i < 3; ++i) server.engine().Step();
  GenerateResponse message;
  ASSERT_TRUE(stream.reader->Read(&message));
  stream.context.TryCancel();
  EXPECT_EQ(stream.reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  while (server.live().size() > 0) std::this_thread::yield();
  EXPECT_FALSE(server.engine().Idle()) << "it is told, and ends the request with its next step";
  server.StepUntilIdle();
  EXPECT_EQ(server.Metric(R"(moe_requests_total{code="CANCELLED",method="GenerateStream"})"), 1);
  EXPECT_EQ(server.Metric(R"(moe_requests_finished_total{reason="cancelled"})"), 1);
  EXPECT_EQ(server.Metric("moe_cancel_to_idle_seconds_count"), 1);
  EXPECT_EQ(server.Metric("moe_requests_running"), 0);
}

TEST(EndTest, ADeadlineIsToldFromACancellation) {
  ServerHarness server;
  // Where a slow machine takes the call too late, the engine never has it, or the client's word comes long before the server's
  // copy of the deadline and looks like a cancellation.
  int milliseconds = 100;
  for (; milliseconds < 60'000 && server.Metric(R"(moe_requests_finished_total{reason="deadline"})") < 1; milliseconds *= 4) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(milliseconds));
    const auto reader = server.inference().GenerateStream(&context, TextRequest("x"));
    EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
    while (server.live().size() > 0) std::this_thread::yield();
    server.StepUntilIdle();
  }
  EXPECT_EQ(server.Metric(R"(moe_requests_finished_total{reason="deadline"})"), 1)
      << "of a deadline of " << milliseconds / 4 << " ms";
  EXPECT_GE(server.Metric(R"(moe_requests_total{code="DEADLINE_EXCEEDED",method="GenerateStream"})"), 1);
}

TEST(EndTest, AClientThatDoesNotReadIsCutOffByTheCap) {
  ServerHarness server(
      {.engine = {.max_context = 1024, .max_new_tokens = 1000, .max_running = 2, .queue_capacity = 2, .vocabulary = 4096},
       .calls = {.max_unsent_bytes = 1 << 20},
       .script = [](const EngineRequest&) {
         Script script;
         for (int i = 0; i < 1000; ++i) script.deltas.push_back({std::string(32 << 10, 'x'), {TokenInfo{TokenId(1)}}});
         return script;
       }});
  OpenStream stream(server, TextRequest("x"));
  // The client reads nothing: flow control stops the writes, tokens pile up, the engine is told.
  while (!server.engine().Idle()) server.engine().Step();
  EXPECT_EQ(server.Metric(R"(moe_requests_finished_total{reason="slow_client"})"), 1);
  EXPECT_LT(server.engine().Stats().generated_tokens, 1000u);
  server.StepUntilIdle();
  EXPECT_EQ(stream.ReadAll().error_code(), grpc::StatusCode::CANCELLED);
}

TEST(EndTest, ARequestThatNeverRanTellsOfItsPromptAlike) {
  ServerHarness server({.script = [](const EngineRequest&) { return Script{.queue_steps = 1000}; }});
  GenerateRequest request;
  for (int i = 0; i < 5; ++i) request.mutable_token_ids()->add_ids(1);
  request.mutable_stopping()->mutable_time_limit()->set_seconds(1);
  OpenStream stream(server, request);
  server.engine().Step();
  server.call_clock().AdvanceNanos(2'000'000'000);
  server.StepUntilIdle();
  ASSERT_TRUE(stream.ReadAll().ok());
  ASSERT_EQ(stream.messages.size(), 1u);
  EXPECT_EQ(stream.messages[0].finish().reason(), moe::v1::FINISH_REASON_TIME_LIMIT);
  EXPECT_EQ(stream.messages[0].finish().usage().prompt_tokens(), 5);
  EXPECT_EQ(stream.messages[0].prompt_info().prompt_tokens(), 5);
}

TEST(EndTest, IdsOfALongPromptAreBesideTheCap) {
  constexpr int kPromptTokens = 1000;
  ServerHarness server(
      {.engine = {.max_context = 1024, .max_new_tokens = 20, .max_running = 2, .queue_capacity = 2, .vocabulary = 4096},
       .calls = {.max_unsent_bytes = kPromptTokens},
       .script = [](const EngineRequest&) { return ScriptOfText("one two"); }});
  GenerateRequest request;
  for (int i = 0; i < kPromptTokens; ++i) request.mutable_token_ids()->add_ids(4000);
  request.mutable_response()->set_return_prompt_tokens(true);
  OpenStream stream(server, request);
  server.StepUntilIdle();  // the client takes nothing meanwhile
  EXPECT_TRUE(stream.ReadAll().ok());
  ASSERT_FALSE(stream.messages.empty());
  EXPECT_EQ(stream.messages.front().prompt_info().token_ids_size(), kPromptTokens);
  EXPECT_EQ(stream.Text(), "one two");
}

TEST(EndTest, AClientThatDoesNotTakeTheEndIsCutOffByTime) {
  ServerHarness server({.calls = {.max_unsent_bytes = 64 << 20}, .script = [](const EngineRequest&) {
                          Script script;
                          for (int i = 0; i < 40; ++i)
                            script.deltas.push_back({std::string(100 << 10, 'x'), {TokenInfo{TokenId(1)}}});
                          return script;
                        }});
  OpenStream stream(server, TextRequest("x"));
  while (!server.engine().Idle()) server.engine().Step();
  EXPECT_EQ(server.Metric(R"(moe_requests_finished_total{reason="stop"})"), 1) << "the engine is done, the client is not";
  while (server.live().size() > 0) {
    server.call_clock().AdvanceNanos(60'000'000'000);
    server.live().CheckStalled();
    std::this_thread::yield();
  }
  EXPECT_EQ(stream.ReadAll().error_code(), grpc::StatusCode::CANCELLED);
}

TEST(EndTest, TextThatIsNotUtf8NeverReachesTheWire) {
  for (const char* text : {"\xe2\x82", "\xff", "a\xc3"}) {
    ServerHarness server({.script = [&](const EngineRequest&) {
      Script script;
      script.deltas.push_back({text, {TokenInfo{TokenId(1)}}});
      script.deltas.push_back({"never", {TokenInfo{TokenId(1)}}});
      script.deltas.push_back({"never", {TokenInfo{TokenId(1)}}});
      return script;
    }});
    OpenStream stream(server, TextRequest("x"));
    server.StepUntilIdle();
    EXPECT_EQ(stream.ReadAll().error_code(), grpc::StatusCode::INTERNAL);
    EXPECT_EQ(stream.Text(), "");
    EXPECT_EQ(server.Metric(R"(moe_requests_finished_total{reason="error"})"), 1);
  }
}

TEST(EndTest, TheEnginesErrorsKeepTheirCodes) {
  for (const absl::Status& error :
       {absl::DataLossError("expert 3 of layer 1: checksum"), absl::InternalError("broken"), absl::UnavailableError("stopped"),
        absl::UnimplementedError("never said"), absl::UnknownError("?")}) {
    ServerHarness server({.script = [&](const EngineRequest&) {
      Script script = ScriptOfText("ab");
      script.finish.status = error;
      return script;
    }});
    server.RunFreely();
    const grpc::Status status = Generate(server, TextRequest("x"));
    const bool hidden = absl::IsUnimplemented(error) || absl::IsUnknown(error);
    EXPECT_EQ(status.error_code(), hidden ? grpc::StatusCode::INTERNAL : static_cast<grpc::StatusCode>(error.code()));
    EXPECT_EQ(status.error_message(), std::string(error.message().data(), error.message().size()));
  }
}

TEST(EndTest, StoppingTheEngineEndsEveryStreamSoThatTheServerCanShutDown) {
  ServerHarness server;
  OpenStream running(server, TextRequest("x"));
  OpenStream waiting(server, TextRequest("x"));
  server.engine().Step();
  server.engine().Stop(absl::UnavailableError("ended"));
  EXPECT_EQ(running.ReadAll().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(waiting.ReadAll().error_code(), grpc::StatusCode::UNAVAILABLE);
  server.server().Shutdown(std::chrono::system_clock::now() + std::chrono::hours(1));
}

TEST(EndTest, ManyOpenedAndCancelledStreamsLeaveNothingBehind) {
  ServerHarness server(
      {.engine = {.max_context = 64, .max_new_tokens = 63, .max_running = 4, .queue_capacity = 60, .vocabulary = 4096}});
  for (int round = 0; round < 5; ++round) {
    std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
    std::vector<std::unique_ptr<grpc::ClientReader<GenerateResponse>>> readers;
    for (int i = 0; i < 60; ++i) {
      contexts.push_back(std::make_unique<grpc::ClientContext>());
      readers.push_back(server.inference().GenerateStream(contexts.back().get(), TextRequest("x")));
    }
    for (int i = 0; i < 60; ++i) {
      if (i % 3 == 0) server.engine().Step();
      contexts[i]->TryCancel();
    }
    for (auto& reader : readers) reader->Finish();
    server.StepUntilIdle();
  }
  // A client's end of a cancelled call says nothing of the server's, where some may arrive only now: the server's own end does.
  std::atomic<bool> ended = false;
  std::thread shutdown([&] {
    server.server().Shutdown(std::chrono::system_clock::now() + std::chrono::hours(1));
    ended = true;
  });
  while (!ended) {
    server.StepUntilIdle();
    std::this_thread::yield();
  }
  shutdown.join();
  server.StepUntilIdle();
  EXPECT_EQ(server.live().size(), 0);
  EXPECT_EQ(server.Metric("moe_requests_running"), 0);
  EXPECT_EQ(server.Metric("moe_requests_waiting"), 0);
}

}  // namespace
}  // namespace moed
