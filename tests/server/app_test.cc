// The whole daemon in this process: what its flags do to what it says and leaves behind.
#include "server/app.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "client/client.h"
#include "core/base/check.h"
#include "spdlog/spdlog.h"
#include "tests/store/small_store.h"
#include "tests/system/demo_rig.h"

namespace moed {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string& StorePath() { return testing::DemoStorePath("q4"); }

// Serves from construction to Stop.
class Daemon {
 public:
  explicit Daemon(const std::function<void(Config&)>& change) {
    spdlog::set_level(spdlog::level::off);
    Config config;
    config.store = StorePath();
    config.memory_budget = 64 << 20;
    config.listen = {"127.0.0.1", 0};
    config.metrics_listen.reset();
    config.drain_delay_seconds = 0;
    change(config);
    app_ = std::make_unique<App>(std::move(config));
    const absl::Status started = app_->Start();
    MOED_CHECK(started.ok());
    run_ = std::thread([this] { ended_ = app_->Run(); });
    auto client = Client::Connect(app_->address());
    EXPECT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }
  ~Daemon() { EXPECT_TRUE(Stop().ok()); }

  absl::Status Stop() {
    if (!run_.joinable()) return ended_;
    EXPECT_TRUE(app_->RequestStop());
    run_.join();
    return ended_;
  }
  Client& client() { return *client_; }
  std::string address() const { return app_->address(); }

 private:
  std::unique_ptr<App> app_;
  std::thread run_;
  absl::Status ended_;
  std::unique_ptr<Client> client_;
};

moe::v1::GenerateRequest Request(int new_tokens) {
  moe::v1::GenerateRequest request;
  request.set_text("Once upon a time");
  request.mutable_sampling()->set_temperature(0);
  request.mutable_stopping()->set_max_new_tokens(new_tokens);
  request.mutable_stopping()->set_ignore_eos(true);
  return request;
}

struct FlagCase {
  std::string name;
  std::function<void(Config&)> change;
  std::function<bool(const moe::v1::ServerInfo&, const moe::v1::ModelInfo&)> told;
};
const FlagCase kFlags[] = {
    {"memoryBudget", [](Config& c) { c.memory_budget = 32 << 20; },
     [](const auto& server, const auto&) { return server.memory_budget_bytes() == 32 << 20; }},
    {"maxContext", [](Config& c) { c.serving.max_context = 77; },
     [](const auto&, const auto& model) { return model.max_context() == 77; }},
    {"kvFormat", [](Config& c) { c.serving.kv_format = KvFormat::kQ8; },
     [](const auto& server, const auto&) { return server.kv_format() == "q8"; }},
    {"preset", [](Config& c) { c.preset.preset = "load-on-demand"; },
     [](const auto& server, const auto&) { return server.preset() == "load-on-demand" && !server.has_cache(); }},
    {"policy", [](Config& c) { c.preset.policy = "lfu"; },
     [](const auto& server, const auto&) { return server.policy() == "lfu"; }},
    {"predictor", [](Config& c) { c.preset.predictor = "none"; },
     [](const auto& server, const auto&) { return server.predictor() == "none"; }},
    {"fillCache", [](Config& c) { c.preset.fill = false; },
     [](const auto& server, const auto&) { return !server.fills_cache(); }},
    {"ioBackend", [](Config& c) { c.io_backend = "buffered"; },
     [](const auto& server, const auto&) { return server.io_backend() == "buffered"; }},
    {"readRate", [](Config& c) { c.read_rate = 900'000'000; },
     [](const auto& server, const auto&) { return absl::StrContains(server.io_backend_reason(), "900"); }},
    {"backend", [](Config& c) { c.backend = "scalar"; },
     [](const auto& server, const auto&) { return server.compute_backend() == "scalar"; }},
    {"prefixCache", [](Config& c) { c.serving.prefix_cache = false; },
     [](const auto& server, const auto&) { return server.prefix_cache() == "off: --prefix-cache"; }},
    {"promptLookup", [](Config& c) { c.serving.prompt_lookup = false; },
     [](const auto& server, const auto&) { return server.prompt_lookup() == "off: --prompt-lookup"; }},
    {"threads", [](Config& c) { c.serving.threads = 2; }, [](const auto& server, const auto&) { return server.threads() == 2; }},
    {"maxRunning", [](Config& c) { c.serving.max_running = 3; },
     [](const auto& server, const auto&) { return server.max_sessions() == 3; }},
    {"queueCapacity", [](Config& c) { c.serving.queue_capacity = 5; },
     [](const auto& server, const auto&) { return server.queue_capacity() == 5; }},
};

TEST(AppTest, ItDoesWhatItsFlagsSay) {
  moe::v1::ServerInfo server;
  moe::v1::ModelInfo model;
  const auto ask = [&](Daemon& daemon) {
    server = daemon.client().GetServerInfo().value();
    model = daemon.client().GetModelInfo().value();
  };
  {
    Daemon plain([](Config&) {});
    ask(plain);
    for (const FlagCase& flag : kFlags) EXPECT_FALSE(flag.told(server, model)) << flag.name << ": the default";
  }
  for (const FlagCase& flag : kFlags) {
    Daemon daemon(flag.change);
    ask(daemon);
    EXPECT_TRUE(flag.told(server, model)) << flag.name << "\n" << server.DebugString() << model.DebugString();
  }
}

TEST(AppTest, WhatItWasToldToWriteIsThereInTheEnd) {
  MemoryFolder folder;
  Daemon daemon([&](Config& c) {
    c.trace = folder / "trace.json";
    c.learned_state = folder / "learned";
    c.residency = folder / "residency";
    c.record_routing = folder / "routing";
    c.request_log = folder / "requests.jsonl";
  });
  EXPECT_TRUE(daemon.client().Generate(Request(8)).ok());
  EXPECT_TRUE(daemon.Stop().ok());
  for (const char* name : {"trace.json", "learned", "residency", "requests.jsonl"}) {
    EXPECT_GT(std::filesystem::file_size(folder / name), 0u) << name;
  }
  EXPECT_FALSE(std::filesystem::is_empty(folder / "routing"));
}

TEST(AppTest, ADrainLetsWhatRunsEndAndRefusesWhatComes) {
  Daemon daemon([](Config& c) { c.backend = "scalar"; });
  bool stopped = false;
  int tokens = 0;
  std::thread stop;
  const absl::Status status = daemon.client().GenerateStream(Request(64), [&](const moe::v1::GenerateResponse& part) {
    tokens += part.token_ids_size();
    if (tokens > 0 && !std::exchange(stopped, true)) stop = std::thread([&] { EXPECT_TRUE(daemon.Stop().ok()); });
    return true;
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(tokens, 64);
  stop.join();
  EXPECT_TRUE(absl::IsUnavailable(daemon.client().Generate(Request(1)).status()));
}

// Memory that runs out in the middle of a step.
class FailingGates final : public RoutingSource {
 public:
  absl::Status Check(const StoreDescription&, const ModelSpec&, const PresetSetup&) const override { return absl::OkStatus(); }
  GateFn gate() const override {
    return [](LayerId, std::span<const float>, std::span<float>) { throw std::bad_alloc(); };
  }
  std::unique_ptr<ExpertProvider> Before(ExpertProvider&) override { return nullptr; }
};

TEST(AppTest, AnEngineThatFailsEndsItWithTheError) {
  spdlog::set_level(spdlog::level::off);
  Config config;
  config.store = StorePath();
  config.memory_budget = 64 << 20;
  config.listen = {"127.0.0.1", 0};
  config.metrics_listen.reset();
  config.preset.predictor = "cross-layer-gate";
  FailingGates gates;
  App app(std::move(config), &gates);
  ASSERT_TRUE(app.Start().ok());
  absl::Status told;
  std::thread ask([&, client = *Client::Connect(app.address())] { told = client->Generate(Request(4)).status(); });
  EXPECT_EQ(app.Run(), absl::InternalError("the engine failed: std::bad_alloc")) << "nobody asked for its end";
  ask.join();
  EXPECT_EQ(told.code(), absl::StatusCode::kInternal) << told;
}

TEST(AppTest, ABudgetTooSmallSaysWhatItNeeds) {
  spdlog::set_level(spdlog::level::off);
  Config config;
  config.store = StorePath();
  config.memory_budget = 1 << 20;
  App app(std::move(config));
  const absl::Status status = app.Start();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the smallest budget that works"));
  EXPECT_FALSE(app.RequestStop());
}

TEST(AppTest, AnAddressThatIsTakenIsNamedWithItsFlag) {
  const Daemon daemon([](Config&) {});
  const std::pair<const char*, std::function<void(Config&, const Address&)>> kListens[] = {
      {"--listen", [](Config& config, const Address& address) { config.listen = address; }},
      {"--control-listen", [](Config& config, const Address& address) { config.control_listen = address; }},
      {"--metrics-listen", [](Config& config, const Address& address) { config.metrics_listen = address; }}};
  for (const auto& [flag, listen] : kListens) {
    Config config;
    config.store = StorePath();
    config.memory_budget = 64 << 20;
    config.listen = {"127.0.0.1", 0};
    config.metrics_listen.reset();
    listen(config, *ParseAddress(daemon.address()));
    const absl::Status refused = App(std::move(config)).Start();
    EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr(flag), HasSubstr(daemon.address()), HasSubstr("in use")));
  }
}

}  // namespace
}  // namespace moed
