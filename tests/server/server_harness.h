// A real server on loopback around a scripted engine.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "google/rpc/error_details.pb.h"
#include "moe/v1/control.grpc.pb.h"
#include "moe/v1/inference.grpc.pb.h"
#include "proto/metadata.h"
#include "server/metrics/metrics_server.h"
#include "server/metrics/rate_sampler.h"
#include "server/rpc/control_service.h"
#include "server/rpc/engine_call.h"
#include "server/rpc/inference_service.h"
#include "server/wire/rpc_server.h"
#include "tests/engine/scripted_engine.h"

namespace moed {

const Tokenizer& TestTokenizer();
ExpertStats TestExpertStats();  // two layers, two precisions, every counter different
LoadedModel TestModel(Engine& engine);

// Does nothing but remember what it was asked for, and refuse what it was told to.
class TestCache final : public CacheOperations {
 public:
  static TestCache& Get() {
    static TestCache cache;
    return cache;
  }

  MemoryPlan plan() const override {
    return {.budget = budget, .parts = {{"trunk", 100, ""}, {"kv", 200, ""}, {"cache", 5000, ""}}};
  }
  absl::Status Resize(uint64_t budget_bytes, std::function<void(const absl::Status&)> done) override {
    if (!refusal.ok()) return refusal;
    budget = budget_bytes;
    std::thread([done = std::move(done), late = late_refusal] { done(late); }).detach();
    return absl::OkStatus();
  }
  absl::Status Pin(std::span<const ExpertKey> experts) override {
    if (refusal.ok()) pinned.assign(experts.begin(), experts.end());
    return refusal;
  }
  void Unpin(std::span<const ExpertKey> experts) override {
    for (const ExpertKey& key : experts) std::erase(pinned, key);
  }
  void UnpinAll() override { pinned.clear(); }
  std::vector<ExpertKey> Pinned() const override { return pinned; }
  absl::StatusOr<size_t> Prefetch(std::span<const ExpertKey> experts) override {
    asked.assign(experts.begin(), experts.end());
    return experts.size() - 1;
  }
  absl::Status SaveResidency(Counted done) override {
    if (refusal.ok()) std::thread([done = std::move(done)] { done(size_t{7}); }).detach();
    return refusal;
  }
  absl::Status RestoreResidency(Counted done) override {
    if (refusal.ok()) std::thread([done = std::move(done)] { done(absl::NotFoundError("no file")); }).detach();
    return refusal;
  }

  uint64_t budget = 6000;
  absl::Status refusal, late_refusal;
  std::vector<ExpertKey> pinned, asked;
};

struct HarnessOptions {
  EngineLimits engine{
      .max_context = 64, .max_new_tokens = 63, .max_running = 2, .queue_capacity = 2, .vocabulary = 4096, .fast_matmul = true};
  CallLimits calls;
  ScriptedEngine::ScriptFor script = [](const EngineRequest&) { return ScriptOfText("one two"); };
  bool load = true;
  std::string chat_template;                             // empty: the model has none
  moe::v1::Sampling sampling_defaults;                   // of the model
  std::function<std::unique_ptr<Engine>(Engine&)> wrap;  // what the server takes for its engine; absent: the scripted one
  size_t untaken_bytes = 64 << 20;                       // LiveCalls
  bool reflection = false;
  const Tokens* tokens = nullptr;  // null: everybody may ask
  int mapped_experts = 1;          // of the second layer in a map
  size_t resident_experts = 2;     // of each layer
};

// The engine steps only when told to (Step, StepUntilIdle), so that a test decides what happens when.
class ServerHarness {
 public:
  explicit ServerHarness(HarnessOptions options = {});
  ~ServerHarness();

  void Load();
  void StepUntilIdle();  // also waits for every call's transport
  void RunFreely() { engine_.RunFreely(10000); }

  std::shared_ptr<grpc::Channel> Channel() const;
  std::string Scrape() const { return SerializeMetrics(collectables_); }
  // Value of a sample as it stands in the scrape ("moe_requests_total{...}"); -1 when it is absent.
  double Metric(const std::string& name_and_labels) const;

  ScriptedEngine& engine() { return engine_; }
  ServerState& state() { return state_; }
  RpcServer& server() { return *server_; }
  LiveCalls& live() { return live_; }
  ControlService& control_service() { return control_; }
  const CallEnvironment& environment() const { return environment_; }
  FakeClock& call_clock() { return call_clock_; }
  moe::v1::Inference::Stub& inference() { return *inference_stub_; }
  moe::v1::Control::Stub& control() { return *control_stub_; }
  const Address& metrics_address();  // listens from here on
  bool alive = true;

 private:
  FakeClock call_clock_;
  ScriptedEngine engine_;
  std::unique_ptr<Engine> wrapped_;
  ServerState state_;
  std::optional<chat::ModelTemplate> chat_template_;
  LoadedModel model_;
  ModelCounters counters_;
  std::shared_ptr<prometheus::Registry> registry_;
  RequestMetrics requests_;
  RateSampler sampler_;
  std::vector<std::shared_ptr<prometheus::Collectable>> collectables_;
  std::unique_ptr<RequestLog> log_;
  LiveCalls live_;
  Sender sender_;
  PromptWorkers workers_;
  CallEnvironment environment_;
  InferenceService inference_;
  ControlService control_;
  grpc::ResourceQuota quota_;
  std::unique_ptr<MetricsServer> metrics_server_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<moe::v1::Inference::Stub> inference_stub_;
  std::unique_ptr<moe::v1::Control::Stub> control_stub_;
};

moe::v1::GenerateRequest TextRequest(const std::string& text);

// A stream that is open on the server: admitted, its initial metadata received.
struct OpenStream {
  OpenStream(ServerHarness& server, const moe::v1::GenerateRequest& request) {
    reader = server.inference().GenerateStream(&context, request);
    reader->WaitForInitialMetadata();
  }
  grpc::Status ReadAll() {
    for (moe::v1::GenerateResponse message; reader->Read(&message);) messages.push_back(message);
    return reader->Finish();
  }
  std::string Text() const {
    std::string text;
    for (const auto& message : messages) text += message.text();
    return text;
  }
  int QueuePosition() const {
    const auto& metadata = context.GetServerInitialMetadata();
    const auto found = metadata.find(kQueuePositionKey);
    return found == metadata.end() ? -1 : std::stoi(std::string(found->second.data(), found->second.size()));
  }

  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<moe::v1::GenerateResponse>> reader;
  std::vector<moe::v1::GenerateResponse> messages;
};

grpc::Status Generate(ServerHarness& server, const moe::v1::GenerateRequest& request,
                      moe::v1::GenerateResponse* response = nullptr);

// Status and body of GET path.
struct HttpResponse {
  int code = 0;
  std::string body;
};
HttpResponse HttpGet(const Address& address, const std::string& path);

int ConnectTo(const Address& address);  // a socket; -1 where nobody listens

// The fields that a google.rpc.BadRequest names.
std::vector<std::string> ViolatedFields(const grpc::Status& status);
// What the mark of a prompt that no context holds says; -1: nothing.
struct PromptBeyondContext {
  int context_tokens;
  int prompt_tokens;
  bool operator==(const PromptBeyondContext&) const = default;
};
std::optional<PromptBeyondContext> BeyondContextOf(const grpc::Status& status);
// Seconds of google.rpc.RetryInfo; -1 when there is none.
double RetrySeconds(const grpc::Status& status);

// A call of raw bytes with one request and one response.
grpc::Status CallRaw(const std::shared_ptr<grpc::Channel>& channel, const std::string& method, const std::string& request,
                     std::string* response = nullptr);
enum class Health { kUnknown = 0, kServing = 1, kNotServing = 2 };
Health CheckHealth(const std::shared_ptr<grpc::Channel>& channel, const std::string& service);

}  // namespace moed
