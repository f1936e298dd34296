// What /metrics says: names, labels, invariants, zeros from the start; windowed rates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "server/metrics/lookup_totals.h"
#include "server/metrics/window_rates.h"
#include "server/process/process_metrics.h"
#include "server/rpc/prompt_workers.h"
#include "tests/resource_limit.h"
#include "tests/server/passing_engine.h"
#include "tests/server/server_harness.h"

namespace moed {
namespace {

using ::testing::HasSubstr;

// Family -> label names, from a scrape.
std::map<std::string, std::string> LabelNames(const std::string& scrape) {
  std::map<std::string, std::string> found;
  std::istringstream lines(scrape);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t end = line.find_first_of("{ ");
    std::set<std::string> labels;
    for (size_t at = line.find('{'); at != std::string::npos && line[at] != '}';
         at = line.find_first_of(",}", line.find('"', line.find('"', at) + 1))) {
      labels.insert(line.substr(at + 1, line.find('=', at) - at - 1));
      if (line.find('=', at) == std::string::npos) break;
    }
    labels.erase("le");
    std::string joined;
    for (const std::string& label : labels) joined += (joined.empty() ? "" : ",") + label;
    found[line.substr(0, end)] = joined;
  }
  return found;
}

TEST(MetricsTest, NamesAndLabelsAreThereFromTheStart) {
  ServerHarness server;
  const std::map<std::string, std::string> kExpected = {
      {"moe_requests_total", "code,method"},
      {"moe_requests_finished_total", "reason"},
      {"moe_requests_rejected_total", "reason"},
      {"moe_requests_running", ""},
      {"moe_requests_waiting", ""},
      {"moe_queue_capacity", ""},
      {"moe_time_to_first_token_seconds_bucket", ""},
      {"moe_time_per_output_token_seconds_bucket", ""},
      {"moe_inter_token_latency_seconds_bucket", ""},
      {"moe_request_duration_seconds_bucket", ""},
      {"moe_request_queue_seconds_bucket", ""},
      {"moe_request_prefill_seconds_bucket", ""},
      {"moe_request_decode_seconds_bucket", ""},
      {"moe_cancel_to_idle_seconds_bucket", ""},
      {"moe_prompt_tokens_total", ""},
      {"moe_generated_tokens_total", ""},
      {"moe_prompt_tokens_cached_total", ""},
      {"moe_recomputed_tokens_total", ""},
      {"moe_kv_pages", ""},
      {"moe_kv_pages_used", ""},
      {"moe_kv_used_ratio", ""},
      {"moe_prefix_cache_pages", ""},
      {"moe_prefix_cache_checkpoints", ""},
      {"moe_prefix_cache_queries_total", ""},
      {"moe_prefix_cache_hits_total", ""},
      {"moe_kv_spill_budget_bytes", ""},
      {"moe_kv_spill_bytes", ""},
      {"moe_kv_spill_ended", ""},
      {"moe_kv_spill_written_bytes_total", ""},
      {"moe_kv_spill_read_bytes_total", ""},
      {"moe_kv_spill_write_seconds_total", ""},
      {"moe_kv_spill_read_seconds_total", ""},
      {"moe_kv_spill_restored_tokens_total", ""},
      {"moe_kv_spill_lost_tokens_total", ""},
      {"moe_kv_spill_damaged_total", ""},
      {"moe_embedding_rows_total", ""},
      {"moe_embedding_reads_total", ""},
      {"moe_embedding_read_bytes_total", ""},
      {"moe_embedding_read_failures_total", "cause"},
      {"moe_draft_tokens_total", ""},
      {"moe_draft_tokens_accepted_total", ""},
      {"moe_expert_lookups_total", "layer,phase,result"},
      {"moe_expert_load_bytes_total", "precision,reason,source"},
      {"moe_expert_load_seconds_bucket", "reason,source"},
      {"moe_expert_prefetch_total", "outcome"},
      {"moe_expert_prefetch_wasted_bytes_total", ""},
      {"moe_expert_prefetch_saved_seconds_total", ""},
      {"moe_expert_predictions_total", "experts,phase"},
      {"moe_expert_stall_seconds_total", "phase"},
      {"moe_expert_layer_stall_seconds_total", "layer"},
      {"moe_expert_evictions_total", "precision,reason"},
      {"moe_expert_lowered_total", "layer"},
      {"moe_expert_skipped_total", "layer"},
      {"moe_expert_masked_total", "layer"},
      {"moe_gate_mass_lost_total", "layer"},
      {"moe_routed_tokens_total", "layer"},
      {"moe_expert_cache_bytes", "tier"},
      {"moe_expert_cache_capacity_bytes", "tier"},
      {"moe_expert_resident", "layer,precision"},
      {"moe_memory_bytes", "part"},
      {"moe_memory_budget_bytes", ""},
      {"moe_build_info", "build,version"},
      {"moe_compute_info", "backend"},
      {"moe_expert_bypass_loads_total", ""},
      {"moe_expert_load_failures_total", "cause"},
      {"moe_model_info", "expert_format,family,hash,trunk_format"},
      {"moe_ready", ""},
      {"moe_draining", ""},
      {"moe_expert_cache_hit_ratio", ""},
      {"moe_io_read_bytes_per_second", ""},
      {"moe_tokens_per_second", ""},
      {"process_resident_memory_bytes", ""},
      {"process_cpu_seconds_total", ""},
      {"process_open_fds", ""},
      {"process_start_time_seconds", ""},
      {"moe_sandbox", "by"},
  };
  const auto found = LabelNames(server.Scrape());
  for (const auto& [name, labels] : kExpected) {
    ASSERT_TRUE(found.contains(name)) << name;
    EXPECT_EQ(found.at(name), labels) << name;
  }
  for (const char* reason : {"stop", "stop_string", "length", "time_limit", "cancelled", "deadline", "slow_client", "error"}) {
    EXPECT_EQ(server.Metric(std::string("moe_requests_finished_total{reason=\"") + reason + "\"}"), 0) << reason;
  }
}

TEST(MetricsTest, NoFamilyTwiceAndCumulativeHistograms) {
  ServerHarness server;
  std::istringstream lines(server.Scrape());
  std::set<std::string> types;
  std::map<std::string, double> last;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("# TYPE ", 0) == 0) {
      EXPECT_TRUE(types.insert(line).second) << line;
    }
    const size_t le = line.find("le=\"");
    if (le == std::string::npos) continue;
    double& before = last[line.substr(0, le)];
    const double value = std::stod(line.substr(line.rfind(' ')));
    EXPECT_GE(value, before) << line;
    before = value;
  }
}

// When descriptors are short it matters how many there are.
TEST(MetricsTest, TheProcessIsKnownWithoutADescriptorLeft) {
  const ProcessMetrics metrics;
  const ResourceLimit none(RLIMIT_NOFILE, 0);  // what is open stays
  const ProcessUsage usage = ReadProcessUsage();
  EXPECT_GT(usage.open_files, 0);
  EXPECT_GT(usage.start_time_seconds, 0);
  EXPECT_GT(usage.resident_bytes, 0u);
  EXPECT_GT(usage.threads, 0);
}

TEST(MetricsTest, ExpertCountersAreTheProvidersAndLookupsAddUp) {
  ServerHarness server;
  const ExpertStats stats = TestExpertStats();
  double lookups = 0;
  for (const LayerStats& layer : stats.layers) {
    for (const char* phase : {"prefill", "decode"}) {
      for (const char* result : {"hit", "miss", "inflight"}) {
        lookups += server.Metric("moe_expert_lookups_total{layer=\"" + std::to_string(layer.layer.value()) + "\",phase=\"" +
                                 phase + "\",result=\"" + result + "\"}");
      }
    }
  }
  const LookupTotals totals = TotalsOf(stats);
  EXPECT_EQ(lookups, static_cast<double>(totals.hits + totals.misses));
  EXPECT_EQ(server.Metric(R"(moe_expert_lookups_total{layer="1",phase="decode",result="hit"})"),
            static_cast<double>(stats.layers[0].lookups[1][0]));
  EXPECT_EQ(server.Metric(R"(moe_expert_load_bytes_total{source="disk",reason="prefetch",precision="q4"})"),
            static_cast<double>(stats.load_bytes[1][1]));
  EXPECT_EQ(server.Metric(R"(moe_expert_load_bytes_total{source="disk",reason="fill",precision="q4"})"),
            static_cast<double>(stats.load_bytes[1][2]));
  EXPECT_EQ(server.Metric(R"(moe_expert_load_seconds_bucket{source="disk",reason="demand",le="+Inf"})"),
            static_cast<double>(stats.loads[0].count));
  EXPECT_EQ(server.Metric(R"(moe_expert_resident{layer="3",precision="bf16"})"),
            static_cast<double>(stats.layers[1].resident[0]));
  EXPECT_EQ(server.Metric(R"(moe_memory_bytes{part="cache"})"), static_cast<double>(stats.cache_bytes));
  EXPECT_EQ(server.Metric("moe_memory_budget_bytes"), 6000);
}

// Counts nothing itself.
class CountedEngine final : public PassingEngine {
 public:
  explicit CountedEngine(Engine& engine) : PassingEngine(engine) {}
  EngineStats Stats() const override {
    EngineStats stats;
    stats.running = 1, stats.waiting = 2, stats.sessions = 3, stats.steps = 4, stats.preemptions = 5;
    stats.prompt_tokens = 6, stats.cached_tokens = 7, stats.recomputed_tokens = 8, stats.generated_tokens = 9;
    stats.fast_matmul_tokens = 10, stats.prefix_queries = 11, stats.prefix_hits = 12;
    stats.drafted_tokens = 13, stats.accepted_draft_tokens = 14;
    stats.kv_pages = 15, stats.kv_pages_used = 16, stats.kv_pages_remembered = 17, stats.checkpoints = 18;
    return stats;
  }
};

TEST(MetricsTest, CountersOfTheEngineAreItsOwn) {
  ServerHarness server({.wrap = [](Engine& engine) { return std::make_unique<CountedEngine>(engine); }});
  double expected = 0;
  for (const char* sample :
       {"moe_requests_running", "moe_requests_waiting", "moe_sessions", "moe_engine_steps_total", "moe_preemptions_total",
        "moe_prompt_tokens_total", "moe_prompt_tokens_cached_total", "moe_recomputed_tokens_total", "moe_generated_tokens_total",
        "moe_fast_matmul_tokens_total", "moe_prefix_cache_queries_total", "moe_prefix_cache_hits_total", "moe_draft_tokens_total",
        "moe_draft_tokens_accepted_total", "moe_kv_pages", "moe_kv_pages_used", "moe_prefix_cache_pages",
        "moe_prefix_cache_checkpoints"}) {
    EXPECT_EQ(server.Metric(sample), ++expected) << sample;
  }
}

TEST(MetricsTest, TenantsAreToldOfByName) {
  ServerHarness server;
  class Silent final : public RequestObserver {
    void OnStarted(int, int) override {}
    void OnTokens(TokenDelta) override {}
    void OnFinish(const FinishInfo&) override {}
  };
  for (const char* name : {"1", "2"}) {
    EngineRequest request;
    request.name = name;
    request.tenant = "alice";
    request.tenant_limits = {.weight = 3, .max_running = 1, .max_waiting = 0};
    request.prompt = {TokenId(1), TokenId(2)};
    EXPECT_EQ(server.engine().Submit(request, std::make_shared<Silent>()).ok(), *name == '1');
  }
  EXPECT_EQ(server.Metric(R"(moe_tenant_requests_waiting{tenant="alice"})"), 1);
  server.engine().Step();
  EXPECT_EQ(server.Metric(R"(moe_tenant_requests_running{tenant="alice"})"), 1);
  server.StepUntilIdle();
  EXPECT_EQ(server.Metric(R"(moe_tenant_requests_running{tenant="alice"})"), 0);
  EXPECT_EQ(server.Metric(R"(moe_tenant_requests_refused_total{tenant="alice"})"), 1);
  EXPECT_EQ(server.Metric(R"(moe_tenant_prompt_tokens_total{tenant="alice"})"), 2);
  EXPECT_EQ(server.Metric(R"(moe_tenant_generated_tokens_total{tenant="alice"})"), 7);

  grpc::ClientContext context;
  moe::v1::Stats stats;
  ASSERT_TRUE(server.control().GetStats(&context, {}, &stats).ok());
  ASSERT_EQ(stats.tenants_size(), 1);
  EXPECT_EQ(stats.tenants(0).name(), "alice");
  EXPECT_EQ(stats.tenants(0).weight(), 3);
  EXPECT_EQ(stats.tenants(0).max_running(), 1);
  EXPECT_FALSE(stats.tenants(0).has_kv_percent());
  EXPECT_EQ(stats.tenants(0).refused(), 1u);
}

TEST(MetricsTest, RequestsAreCountedWhenTheyEnd) {
  ServerHarness server({.script = [](const EngineRequest&) { return ScriptOfText("abc"); }});
  server.RunFreely();
  for (int tokens : {1, 3}) {
    moe::v1::GenerateRequest request = TextRequest("x");
    request.mutable_stopping()->set_max_new_tokens(tokens);
    grpc::ClientContext context;
    moe::v1::GenerateResponse response;
    ASSERT_TRUE(server.inference().Generate(&context, request, &response).ok());
  }
  EXPECT_EQ(server.Metric(R"(moe_requests_total{code="OK",method="Generate"})"), 2);
  EXPECT_EQ(server.Metric(R"(moe_requests_finished_total{reason="length"})"), 1);
  EXPECT_EQ(server.Metric(R"(moe_requests_finished_total{reason="stop"})"), 1);
  EXPECT_EQ(server.Metric("moe_time_to_first_token_seconds_count"), 2);
  EXPECT_EQ(server.Metric("moe_time_per_output_token_seconds_count"), 1) << "only where two or more tokens came out";
  EXPECT_EQ(server.Metric("moe_inter_token_latency_seconds_count"), 2);
}

// From what the fastest model that was measured takes to what the slowest disk does.
TEST(MetricsTest, BucketsReachWhatIsMeasured) {
  ServerHarness server;
  for (const char* sample : {
           R"(moe_time_per_output_token_seconds_bucket{le="0.0001"})",
           R"(moe_time_per_output_token_seconds_bucket{le="80"})",
           R"(moe_inter_token_latency_seconds_bucket{le="0.0001"})",
           R"(moe_time_to_first_token_seconds_bucket{le="0.001"})",
           R"(moe_time_to_first_token_seconds_bucket{le="2560"})",
           R"(moe_expert_load_seconds_bucket{source="disk",reason="demand",le="5e-05"})",
           R"(moe_expert_load_seconds_bucket{source="disk",reason="demand",le="80"})",
       }) {
    EXPECT_GE(server.Metric(sample), 0) << sample;
  }
}

TEST(MetricsTest, WhoDrainsIsNotReadyButTakesRequestsUntilItRefusesThem) {
  ServerHarness server;
  server.RunFreely();
  EXPECT_EQ(server.Metric("moe_ready"), 1);
  server.state().SetDraining();
  EXPECT_EQ(server.Metric("moe_ready"), 0);
  EXPECT_EQ(server.Metric("moe_draining"), 1);
  EXPECT_TRUE(Generate(server, TextRequest("x")).ok());
  server.state().SetRefusing();
  EXPECT_EQ(Generate(server, TextRequest("x")).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(server.Metric(R"(moe_requests_rejected_total{reason="draining"})"), 1);
}

TEST(MetricsTest, HealthIsTheEnginesAndNotTheLoad) {
  ServerHarness server({.load = false});
  EXPECT_EQ(HttpGet(server.metrics_address(), "/healthz").code, 200);
  EXPECT_EQ(HttpGet(server.metrics_address(), "/readyz").code, 503);
  EXPECT_THAT(HttpGet(server.metrics_address(), "/metrics").body, HasSubstr("moe_ready 0")) << "also while loading";
  server.Load();
  EXPECT_EQ(HttpGet(server.metrics_address(), "/readyz").code, 200);
  server.alive = false;
  EXPECT_EQ(HttpGet(server.metrics_address(), "/healthz").code, 503);
  EXPECT_EQ(HttpGet(server.metrics_address(), "/other").code, 404);
}

TEST(MetricsTest, ConnectionsThatSayNothingOrHalfARequestHoldNobodyUp) {
  ServerHarness server;
  const Address& address = server.metrics_address();
  std::vector<int> silent(15);
  for (size_t i = 0; i < silent.size(); ++i) {
    silent[i] = ConnectTo(address);
    const std::string part = i % 2 == 0 ? "GET /healthz" : "";
    EXPECT_EQ(send(silent[i], part.data(), part.size(), 0), static_cast<ssize_t>(part.size()));
  }
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(HttpGet(address, "/healthz").code, 200);
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(5)) << "as probes allow";
  const timeval patience{.tv_sec = 30, .tv_usec = 0};
  for (const int fd : silent) {
    ASSERT_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    char refusal[4096];
    ssize_t got;
    while ((got = recv(fd, refusal, sizeof(refusal), 0)) > 0) {
    }
    EXPECT_EQ(got, 0) << "the server did not close it: " << std::strerror(errno);
    close(fd);
  }
}

TEST(WindowRatesTest, RatesCoverTheWindowAskedFor) {
  constexpr int64_t kSecond = 1'000'000'000;
  WindowRates windows;
  CounterSnapshot now;
  EXPECT_EQ(windows.Over(10 * kSecond, now).window_seconds, 0);
  for (int second = 0; second <= 100;
       ++second) {  // 3 of 4 hit, 1000 bytes and 2 tokens a second, ten times as much from second 90 on
    const uint64_t factor = second > 90 ? 10 : 1;
    now.nanos = second * kSecond;
    now.hits += 3 * factor;
    now.lookups += 4 * factor;
    now.bytes_read += 1000 * factor;
    now.generated_tokens += 2 * factor;
    now.tpot_sum_seconds += 0.5;
    now.tpot_count += 1;
    windows.Add(now);
  }
  const Rates ten = windows.Over(10 * kSecond, now);
  EXPECT_DOUBLE_EQ(ten.window_seconds, 10);
  EXPECT_DOUBLE_EQ(ten.hit_ratio, 0.75);
  EXPECT_DOUBLE_EQ(ten.bytes_per_second, 10000);
  EXPECT_DOUBLE_EQ(ten.tokens_per_second, 20);
  EXPECT_DOUBLE_EQ(ten.mean_tpot_seconds, 0.5);
  const Rates longest = windows.Over(1000 * kSecond, now);
  EXPECT_DOUBLE_EQ(longest.window_seconds, 60);
  EXPECT_DOUBLE_EQ(longest.bytes_per_second, (50 * 1000 + 10 * 10000) / 60.0);
  CounterSnapshot later = now;
  later.nanos += 100 * kSecond;
  const Rates idle = windows.Over(10 * kSecond, later);
  EXPECT_DOUBLE_EQ(idle.bytes_per_second, 0);
  EXPECT_DOUBLE_EQ(idle.hit_ratio, 0) << "no lookups, no ratio";
}

TEST(PromptWorkersTest, TheQueueIsBoundedInJobsAndBytesAndEveryJobRuns) {
  std::atomic<int> ran{0};
  {
    absl::Notification started, gate;
    PromptWorkers workers({.threads = 1, .max_jobs = 2, .max_bytes = 100});
    const auto job = [&] { ++ran; };
    ASSERT_TRUE(workers.Submit(WorkKind::kPrompt, 1000, [&] {
      started.Notify();
      gate.WaitForNotification();
      ++ran;
    })) << "none waits, however large";
    started.WaitForNotification();
    EXPECT_TRUE(workers.Submit(WorkKind::kPrompt, 1000, job)) << "what runs does not wait";
    EXPECT_FALSE(workers.Submit(WorkKind::kPrompt, 0, job)) << "beyond the bytes already";
    EXPECT_TRUE(workers.Submit(WorkKind::kTokenizer, 60, job)) << "of the other kind none waits";
    EXPECT_FALSE(workers.Submit(WorkKind::kTokenizer, 41, job)) << "beyond the bytes";
    EXPECT_TRUE(workers.Submit(WorkKind::kTokenizer, 40, job));
    EXPECT_FALSE(workers.Submit(WorkKind::kTokenizer, 0, job)) << "beyond the jobs";
    gate.Notify();
  }
  EXPECT_EQ(ran, 4) << "the end runs what is queued";
}

}  // namespace
}  // namespace moed
