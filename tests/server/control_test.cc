// The Control service on a real socket.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/metrics/lookup_totals.h"
#include "spdlog/spdlog.h"
#include "tests/server/server_harness.h"

namespace moed {
namespace {

using moe::v1::GenerateRequest;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ControlTest, AnswersWhatTheServerKnows) {
  ServerHarness server;
  moe::v1::ServerInfo info;
  grpc::ClientContext c1;
  ASSERT_TRUE(server.control().GetServerInfo(&c1, {}, &info).ok());
  EXPECT_EQ(info.version(), "1.2.3");
  EXPECT_EQ(info.io_backend(), "buffered");
  EXPECT_FALSE(info.draining());
  moe::v1::ModelInfo model;
  grpc::ClientContext c2;
  ASSERT_TRUE(server.control().GetModelInfo(&c2, {}, &model).ok());
  EXPECT_EQ(model.family(), "mixtral");

  moe::v1::Stats stats;
  grpc::ClientContext c3;
  ASSERT_TRUE(server.control().GetStats(&c3, {}, &stats).ok());
  const LookupTotals totals = TotalsOf(TestExpertStats());
  EXPECT_EQ(stats.expert_hits(), totals.hits);
  EXPECT_EQ(stats.expert_misses(), totals.misses);
  EXPECT_EQ(stats.bytes_read(), totals.bytes_read);
  EXPECT_DOUBLE_EQ(stats.stall_seconds(), 4.0);
  EXPECT_DOUBLE_EQ(stats.prefill().stall_seconds(), 1.5);
  EXPECT_DOUBLE_EQ(stats.decode().stall_seconds(), 2.5);
  EXPECT_EQ(stats.prefill().expert_hits() + stats.decode().expert_hits(), totals.hits);
  EXPECT_EQ(stats.prefill().expert_misses() + stats.decode().expert_misses(), totals.misses);
  EXPECT_LT(stats.prefill().expert_hits(), stats.decode().expert_hits());
  EXPECT_DOUBLE_EQ(stats.read_busy_seconds(), 2.5);
  EXPECT_EQ(stats.prefill().predictions_guessed(), 40);
  EXPECT_EQ(stats.decode().predictions_routed(), 60);
  EXPECT_EQ(stats.decode().predictions_right(), 15);
  EXPECT_EQ(stats.wasted_prefetch_bytes(), TestExpertStats().wasted_prefetch_bytes);
  EXPECT_DOUBLE_EQ(stats.prefetch_saved_seconds(), 0.5);
  EXPECT_EQ(stats.memory_size(), 3);
  EXPECT_EQ(stats.memory(2).bytes(), TestExpertStats().cache_bytes) << "what the cache holds, not what it may hold";
  EXPECT_GT(stats.resident_set_bytes(), 1u << 20);
  moe::v1::GetStatsRequest too_long;
  too_long.mutable_window()->set_seconds(61);
  grpc::ClientContext c4;
  EXPECT_THAT(ViolatedFields(server.control().GetStats(&c4, too_long, &stats)), ElementsAre("window"));

  moe::v1::CacheState cache;
  moe::v1::GetCacheStateRequest hottest;
  hottest.set_hottest(1);
  grpc::ClientContext c5;
  ASSERT_TRUE(server.control().GetCacheState(&c5, hottest, &cache).ok());
  ASSERT_EQ(cache.layers_size(), 2);
  EXPECT_EQ(cache.layers(1).layer(), 3);
  ASSERT_EQ(cache.hottest_size(), 1);
  EXPECT_EQ(cache.hottest(0).format(), "q4");
  const ExpertStats experts = TestExpertStats();
  EXPECT_EQ(cache.asked_waiting(), experts.asked.waiting);
  EXPECT_EQ(cache.asked_done(), experts.asked.done);
  EXPECT_EQ(cache.asked_refused(), experts.asked.refused);
  EXPECT_EQ(cache.asked_failed(), experts.asked.failed);
  EXPECT_EQ(cache.pinned(), experts.anchors.records);
  EXPECT_EQ(cache.pinned_bytes(), experts.anchors.bytes);
  EXPECT_EQ(cache.most_pinned_bytes(), experts.anchors.most_bytes);
  hottest.set_hottest(1001);
  grpc::ClientContext c6;
  EXPECT_THAT(ViolatedFields(server.control().GetCacheState(&c6, hottest, &cache)), ElementsAre("hottest"));
}

TEST(ControlTest, TellsWhatBecameOfEachExpert) {
  ServerHarness server;
  const auto ask = [&](uint64_t since) {
    moe::v1::GetExpertMapRequest request;
    request.set_since(since);
    moe::v1::ExpertMap map;
    grpc::ClientContext context;
    const grpc::Status status = server.control().GetExpertMap(&context, request, &map);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return map;
  };
  const moe::v1::ExpertMap all = ask(0);
  EXPECT_EQ(all.now(), 5u);
  EXPECT_EQ(all.experts(), 8);
  EXPECT_THAT(all.formats(), ElementsAre("bf16", "q4"));
  ASSERT_EQ(all.layers_size(), 2);
  EXPECT_EQ(all.layers(1).layer(), 3);
  EXPECT_THAT(all.layers(0).expert(), ElementsAre(2));
  EXPECT_THAT(all.layers(0).resident(), ElementsAre(0b11));
  EXPECT_THAT(all.layers(0).on_device(), ElementsAre(0b10));
  EXPECT_THAT(all.layers(0).hits(), ElementsAre(7));
  EXPECT_THAT(all.layers(1).misses(), ElementsAre(2));
  EXPECT_THAT(all.layers(1).lowered(), ElementsAre(3));
  EXPECT_THAT(all.layers(1).skipped(), ElementsAre(4));
  EXPECT_THAT(all.layers(1).reads(), ElementsAre(uint64_t{1} << 60));
  const moe::v1::ExpertMap changes = ask(all.now());
  EXPECT_EQ(changes.now(), 10u);
  ASSERT_EQ(changes.layers_size(), 2);
  EXPECT_EQ(changes.layers(0).expert_size(), 0);
  EXPECT_EQ(changes.layers(1).expert_size(), 1);
}

class CacheControlTest : public testing::Test {
 protected:
  CacheControlTest() { cache_ = TestCache(); }

  template <class Request, class Response>
  grpc::Status Call(grpc::Status (moe::v1::Control::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response& response) {
    grpc::ClientContext context;
    return (server_.control().*method)(&context, request, &response);
  }
  grpc::Status Resize(uint64_t budget) {
    moe::v1::ResizeMemoryRequest request;
    request.set_memory_budget_bytes(budget);
    return Call(&moe::v1::Control::Stub::ResizeMemory, request, resized_);
  }
  grpc::Status Pin(std::vector<ExpertKey> experts, bool unpin = false, bool all = false) {
    moe::v1::PinExpertsRequest request;
    request.set_unpin(unpin);
    request.set_all(all);
    for (const ExpertKey& key : experts) {
      auto* id = request.add_experts();
      id->set_layer(key.layer.value());
      id->set_expert(key.expert);
    }
    moe::v1::PinExpertsResponse response;
    return Call(&moe::v1::Control::Stub::PinExperts, request, response);
  }

  TestCache& cache_ = TestCache::Get();
  ServerHarness server_;
  moe::v1::ResizeMemoryResponse resized_;
};

TEST_F(CacheControlTest, AnotherBudgetIsToldEverywhere) {
  ASSERT_TRUE(Resize(7000).ok());
  EXPECT_EQ(resized_.memory_budget_bytes(), 7000u);
  EXPECT_EQ(resized_.cache_capacity_bytes(), TestExpertStats().cache_capacity_bytes);
  EXPECT_EQ(resized_.memory_size(), 3);
  moe::v1::ServerInfo info;
  ASSERT_TRUE(Call(&moe::v1::Control::Stub::GetServerInfo, moe::v1::GetServerInfoRequest(), info).ok());
  EXPECT_EQ(info.memory_budget_bytes(), 7000u);
  EXPECT_EQ(info.memory_size(), 3);
  moe::v1::Stats stats;
  ASSERT_TRUE(Call(&moe::v1::Control::Stub::GetStats, moe::v1::GetStatsRequest(), stats).ok());
  EXPECT_EQ(stats.memory_budget_bytes(), 7000u);
  EXPECT_EQ(server_.Metric("moe_memory_budget_bytes"), 7000);
}

TEST_F(CacheControlTest, RefusalsAreTold) {
  cache_.late_refusal = absl::FailedPreconditionError("too small");
  EXPECT_EQ(Resize(10).error_message(), "too small");
  cache_.refusal = absl::FailedPreconditionError("no");
  for (const grpc::Status& status : {Resize(10), Pin({{LayerId(1), 0}})}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_EQ(status.error_message(), "no");
  }
  moe::v1::SaveResidencyResponse saved;
  EXPECT_EQ(Call(&moe::v1::Control::Stub::SaveResidency, {}, saved).error_message(), "no");
}

TEST_F(CacheControlTest, PinsExpertsOfTheModel) {
  ASSERT_TRUE(Pin({{LayerId(3), 5}, {LayerId(1), 7}, {LayerId(3), 5}}).ok());
  EXPECT_THAT(cache_.pinned, ElementsAre(ExpertKey{LayerId(3), 5}, ExpertKey{LayerId(1), 7}));
  moe::v1::CacheState state;
  ASSERT_TRUE(Call(&moe::v1::Control::Stub::GetCacheState, moe::v1::GetCacheStateRequest(), state).ok());
  EXPECT_THAT(state.layers(0).pinned(), ElementsAre(7));
  EXPECT_THAT(state.layers(1).pinned(), ElementsAre(5));
  EXPECT_THAT(ViolatedFields(Pin({{LayerId(1), 0}, {LayerId(2), 0}})), ElementsAre("experts[1]"));
  EXPECT_THAT(ViolatedFields(Pin({{LayerId(1), 8}})), ElementsAre("experts[0]"));
  EXPECT_THAT(ViolatedFields(Pin({})), ElementsAre("experts"));
  EXPECT_THAT(ViolatedFields(Pin({}, /*unpin=*/false, /*all=*/true)), ElementsAre("all"));
  ASSERT_TRUE(Pin({{LayerId(3), 5}}, /*unpin=*/true).ok());
  EXPECT_THAT(cache_.pinned, ElementsAre(ExpertKey{LayerId(1), 7}));
  ASSERT_TRUE(Pin({}, /*unpin=*/true, /*all=*/true).ok());
  EXPECT_TRUE(cache_.pinned.empty());
}

TEST_F(CacheControlTest, PrefetchesSomeOrTheHottest) {
  moe::v1::PrefetchExpertsRequest request;
  moe::v1::PrefetchExpertsResponse response;
  const auto prefetch = [&] { return Call(&moe::v1::Control::Stub::PrefetchExperts, request, response); };
  EXPECT_THAT(ViolatedFields(prefetch()), ElementsAre("experts"));
  request.set_hottest(2);
  ASSERT_TRUE(prefetch().ok());
  EXPECT_THAT(cache_.asked, ElementsAre(ExpertKey{LayerId(3), 7}, ExpertKey{LayerId(1), 2}));
  EXPECT_EQ(response.taken(), 1u);
  request.set_hottest(1001);
  EXPECT_THAT(ViolatedFields(prefetch()), ElementsAre("hottest"));
}

TEST_F(CacheControlTest, TheResidencyFileIsWrittenAndReadLater) {
  moe::v1::SaveResidencyResponse saved;
  ASSERT_TRUE(Call(&moe::v1::Control::Stub::SaveResidency, {}, saved).ok());
  EXPECT_EQ(saved.experts(), 7u);
  moe::v1::RestoreResidencyResponse restored;
  EXPECT_EQ(Call(&moe::v1::Control::Stub::RestoreResidency, {}, restored).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(CacheControlTest, SetsTheLogLevel) {
  const auto before = spdlog::get_level();
  moe::v1::SetLogLevelRequest request;
  moe::v1::SetLogLevelResponse response;
  request.set_level("error");
  EXPECT_TRUE(Call(&moe::v1::Control::Stub::SetLogLevel, request, response).ok());
  EXPECT_EQ(spdlog::get_level(), spdlog::level::err);
  request.set_level("loud");
  const grpc::Status status = Call(&moe::v1::Control::Stub::SetLogLevel, request, response);
  EXPECT_THAT(ViolatedFields(status), ElementsAre("level"));
  EXPECT_THAT(status.error_message(), HasSubstr("trace, debug, info, warning"));
  EXPECT_EQ(spdlog::get_level(), spdlog::level::err);
  spdlog::set_level(before);
}

// A call whose answer is on its way, and whose client does not take it.
class UntakenCall {
 public:
  UntakenCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& method) : stub_(channel) {
    call_ = stub_.PrepareCall(&context_, method, &queue_);
    call_->StartCall(nullptr);
    Await();
    call_->WriteLast(grpc::ByteBuffer(&nothing_, 1), {}, nullptr);
    Await();
    call_->ReadInitialMetadata(nullptr);
    Await();
  }
  ~UntakenCall() {
    context_.TryCancel();
    grpc::Status status;
    call_->Finish(&status, nullptr);
    Await();
  }

 private:
  void Await() {
    void* tag = nullptr;
    bool ok = false;
    queue_.Next(&tag, &ok);
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  const grpc::Slice nothing_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

TEST(ControlTest, ThoseWhoDoNotTakeTheirMapsAreFew) {
  ServerHarness server({.mapped_experts = 60'000});
  const auto ask = [&] {
    moe::v1::ExpertMap map;
    grpc::ClientContext context;
    return server.control().GetExpertMap(&context, {}, &map);
  };
  EXPECT_TRUE(ask().ok());
  {
    std::vector<std::unique_ptr<UntakenCall>> untaken;
    grpc::Status status = ask();
    for (; status.ok(); status = ask()) {  // until as many as may be have arrived
      untaken.push_back(std::make_unique<UntakenCall>(server.Channel(), "/moe.v1.Control/GetExpertMap"));
    }
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_GE(RetrySeconds(status), 0);
  }
  while (!ask().ok()) {  // their ends are on their way
  }
}

TEST(ControlTest, AnswersThatNobodyTakesAreBounded) {
  ServerHarness server({.resident_experts = 250'000});
  moe::v1::CacheState state;
  const auto ask = [&] {
    grpc::ClientContext context;
    return server.control().GetCacheState(&context, {}, &state);
  };
  EXPECT_TRUE(ask().ok());
  {
    std::vector<std::unique_ptr<UntakenCall>> untaken;
    grpc::Status status = ask();
    for (; status.ok(); status = ask()) {  // until as many as may be have arrived
      untaken.push_back(std::make_unique<UntakenCall>(server.Channel(), "/moe.v1.Control/GetCacheState"));
    }
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_GE(RetrySeconds(status), 0);
    grpc::ClientContext context;
    moe::v1::ServerInfo info;
    EXPECT_TRUE(server.control().GetServerInfo(&context, {}, &info).ok()) << "what is small is always told";
  }
  while (!ask().ok()) {  // their ends are on their way
  }
}

TEST(ControlTest, AnswersThatNobodyTakesInTimeAreGivenUp) {
  ServerHarness server({.mapped_experts = 60'000, .resident_experts = 250'000});
  moe::v1::ExpertMap map;
  moe::v1::CacheState state;
  const std::pair<std::string, std::function<grpc::Status(grpc::ClientContext*)>> kMethods[] = {
      {"/moe.v1.Control/GetExpertMap", [&](auto* context) { return server.control().GetExpertMap(context, {}, &map); }},
      {"/moe.v1.Control/GetCacheState", [&](auto* context) { return server.control().GetCacheState(context, {}, &state); }}};
  for (const auto& row : kMethods) {
    const auto& method = row.first;
    const auto& ask = row.second;
    const auto answered = [&] {
      grpc::ClientContext context;
      return ask(&context).ok();
    };
    const auto pass = [&](int64_t seconds) {
      server.call_clock().AdvanceNanos(seconds * 1'000'000'000);
      server.control_service().GiveUpStalled();
    };
    std::vector<std::unique_ptr<UntakenCall>> untaken;
    for (int i = 0; i < 16; ++i) untaken.push_back(std::make_unique<UntakenCall>(server.Channel(), method));
    pass(20);
    EXPECT_FALSE(answered()) << method;
    while (!answered()) pass(20);  // their clients are there still
  }
}

TEST(ControlTest, AbortEndsTheNamedRequest) {
  ServerHarness server;
  GenerateRequest request = TextRequest("x");
  request.set_request_id("victim");
  OpenStream stream(server, request);
  moe::v1::AbortRequest abort;
  moe::v1::AbortResponse response;
  abort.set_request_id("victim");
  grpc::ClientContext c1;
  EXPECT_TRUE(server.control().Abort(&c1, abort, &response).ok());
  server.StepUntilIdle();
  const grpc::Status status = stream.ReadAll();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_THAT(status.error_message(), HasSubstr("Abort"));
  grpc::ClientContext c2;
  EXPECT_EQ(server.control().Abort(&c2, abort, &response).error_code(), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace moed
