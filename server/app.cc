#include "server/app.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/status.h"
#include "core/base/timed_wait.h"
#include "server/metrics/connection_metrics.h"
#include "server/metrics/metrics_server.h"
#include "server/metrics/model_counters.h"
#include "server/metrics/rate_sampler.h"
#include "server/metrics/server_metrics.h"
#include "server/model_host.h"
#include "server/process/certificate_metrics.h"
#include "server/process/process_metrics.h"
#include "server/rpc/call.h"
#include "server/rpc/control_service.h"
#include "server/rpc/inference_service.h"
#include "server/rpc/sender.h"
#include "server/startup/limited_end.h"
#include "server/startup/log_level.h"
#include "server/ticker.h"
#include "server/wire/access.h"
#include "server/wire/call_guard.h"
#include "server/wire/own_sockets.h"
#include "server/wire/rpc_server.h"
#include "spdlog/spdlog.h"

namespace moed {
namespace {

constexpr size_t kRpcMemoryBytes = 16 << 20;    // gRPC's own buffers, beside the budget
constexpr int64_t kMessageBytes = 12 << 20;     // of them that come fast
constexpr uint64_t kMessageMargin = 256 << 10;  // of a message beside its text, so that a text that is too long is told so
constexpr uint64_t kResidencyTicks = 10;        // of a second
constexpr uint64_t kLearnedTicks = 600;         // a multiple of that
// About 22 MiB beside the budget. One takes 43 KB in plain text, and up to 107 KB through TLS where clients show certificates.
constexpr int kPlainConnections = 512;
constexpr int kEncryptedConnections = 192;
constexpr int64_t kHeartbeatLimitNanos = 120'000'000'000;
constexpr absl::Duration kShutdownNotice = absl::Seconds(3);  // for connections to end by themselves
constexpr absl::Duration kShutdownLimit = absl::Seconds(10);  // for calls to end once they are cancelled

// What many small pieces leave free between those still in use goes back to the kernel: the allocator alone gives back its end.
void ReleaseFreeMemory() {
  constexpr size_t kWorthwhile = 2 << 20;
  if (mallinfo2().fordblks > kWorthwhile) malloc_trim(0);
}

}  // namespace

// Members in the order in which they are needed; they end in the opposite one, apart from what Run ends.
class App::Impl {
 public:
  Impl(Config config, RoutingSource* routing) : config_(std::move(config)), routing_(routing) {}

  absl::Status Start();
  bool RequestStop();
  void Reload();
  absl::Status Run();
  std::string address() const { return address_.Text(); }

 private:
  // The start, in this order.
  absl::Status OpenAccess();
  absl::Status MakeServices();
  absl::Status ServeMetrics();
  absl::Status ListenForCalls();

  // The end, in this order. A drain ends with new requests being refused, unless it is taken back.
  enum class End { kNone, kDrain, kStop };
  void AskFor(End end);
  absl::Status TakeBackDrain();
  void ServeUntilStopped();
  bool LetOthersNotice();
  bool RefuseCalls();
  void WaitForCalls();
  void ShutDownServers();
  void EndServices();

  absl::StatusOr<Address> ListenOn(std::string_view what, std::string_view flag, const Address& address,
                                   const std::vector<grpc::Service*>& services);
  void TellHealth();
  void EndWith(const absl::Status& error);
  void KeepForTheNextStart();
  void TellFailedLoads();
  bool Alive() const;
  ClosedConnections Closed();
  const Certificates* certificates();
  const Tokens* tokens();

  const Config config_;
  RoutingSource* const routing_;  // may be null
  Clock& clock_ = Clock::Real();
  absl::Mutex end_mutex_;
  End end_ ABSL_GUARDED_BY(end_mutex_) = End::kNone;  // grows, but that a drain may be taken back
  absl::Status failure_ ABSL_GUARDED_BY(end_mutex_);  // what the process ends with
  std::atomic<bool> started_{false};
  TimedWait drain_taken_back_;
  ServerState state_;

  absl::Mutex access_mutex_;
  std::unique_ptr<Access> access_ ABSL_GUARDED_BY(access_mutex_);  // once it is there it stays
  std::unique_ptr<RequestLog> request_log_;                        // likewise; set under the mutex

  Address address_;                 // of Inference
  std::vector<Address> listening_;  // where all servers do, once they do

  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  RequestMetrics request_metrics_{*registry_};
  ModelCounters counters_;
  RateSampler sampler_{counters_, request_metrics_, clock_};
  LiveCalls live_;
  Tenants tenants_{config_.max_calls_per_token};
  Sender sender_;
  std::optional<PromptWorkers> workers_{PromptWorkers::Options{.threads = 1}};
  ModelHost host_{config_,
                  {state_, counters_, *workers_, live_, routing_, clock_, [this] { TellHealth(); },
                   [this](std::span<const std::string> peers) { EndConnectionsOf(peers, listening_); },
                   [this](const absl::Status& error) { EndWith(error); }}};
  std::unique_ptr<CallEnvironment> environment_;
  std::unique_ptr<InferenceService> inference_;
  std::unique_ptr<ControlService> control_;
  uint64_t ticks_ = 0;         // the ticker's
  uint64_t failed_loads_ = 0;  // likewise: that were told of
  std::unique_ptr<Ticker> ticker_;
  grpc::ResourceQuota quota_{"moed"};
  std::unique_ptr<MetricsServer> metrics_server_;
  absl::Mutex servers_mutex_;  // Control.Drain may come before all of them listen
  std::vector<std::unique_ptr<RpcServer>> servers_ ABSL_GUARDED_BY(servers_mutex_);
  std::unique_ptr<CallGuard> call_guard_;  // of all of them
};

// Who listens answers, if only that it is loading: the addresses are there before the model is.
absl::Status App::Impl::Start() {
  MOED_RETURN_IF_ERROR(OpenAccess());
  MOED_RETURN_IF_ERROR(host_.Open());
  MOED_RETURN_IF_ERROR(MakeServices());
  MOED_RETURN_IF_ERROR(ServeMetrics());
  MOED_RETURN_IF_ERROR(ListenForCalls());
  MOED_RETURN_IF_ERROR(host_.Start());
  started_ = true;
  return absl::OkStatus();
}

// What was learned is written as soon as no request uses the experts any more: calls that do not end cannot take it along.
// Metrics are served to the end.
absl::Status App::Impl::Run() {
  ServeUntilStopped();
  host_.EndChanges();
  host_.Drain();
  WaitForCalls();
  host_.Stop();
  absl::Status ended = host_.Finish();
  ShutDownServers();
  EndServices();
  metrics_server_.reset();
  spdlog::info("ended");
  absl::MutexLock lock(&end_mutex_);
  ended.Update(failure_);
  return ended;
}

absl::Status App::Impl::OpenAccess() {
  MOED_ASSIGN_OR_RETURN(auto access, Access::Open(config_.access));
  absl::MutexLock lock(&access_mutex_);
  access_ = std::move(access);
  return absl::OkStatus();
}

absl::Status App::Impl::MakeServices() {
  MOED_ASSIGN_OR_RETURN(auto request_log, RequestLog::Open(config_.request_log));
  {
    absl::MutexLock lock(&access_mutex_);
    request_log_ = std::move(request_log);
  }
  environment_ = std::make_unique<CallEnvironment>(
      CallEnvironment{state_, *workers_, sender_, request_metrics_, *request_log_, live_, clock_, tokens(), &tenants_});
  inference_ = std::make_unique<InferenceService>(*environment_);
  ControlParts parts{state_, sampler_, request_metrics_, clock_};
  parts.drain = [this] { AskFor(End::kDrain); };
  parts.undrain = [this] { return TakeBackDrain(); };
  parts.load_model = [this](const ModelOrder& order) { return host_.Load(order); };
  parts.unload_model = [this](std::optional<absl::Duration> limit) { return host_.Unload(limit); };
  parts.set_log_level = SetLogLevel;
  parts.tokens = tokens();
  control_ = std::make_unique<ControlService>(parts);
  ticker_ = std::make_unique<Ticker>([this] {
    sampler_.Sample();
    live_.CheckStalled();
    control_->GiveUpStalled();
    TellFailedLoads();
    ReleaseFreeMemory();
    KeepForTheNextStart();
  });
  return absl::OkStatus();
}

absl::Status App::Impl::ServeMetrics() {
  if (!config_.metrics_listen.has_value()) return absl::OkStatus();
  MetricsServerParts parts;
  parts.collectables = {registry_, std::make_shared<ServerMetrics>(state_, sampler_, counters_),
                        std::make_shared<ProcessMetrics>(), std::make_shared<CertificateMetrics>(certificates()),
                        std::make_shared<ConnectionMetrics>([this] { return Closed(); })};
  parts.alive = [this] { return Alive(); };
  parts.ready = [this] { return state_.ready(); };
  auto server = MetricsServer::Listen(*config_.metrics_listen, std::move(parts));
  MOED_RETURN_IF_ERROR(Annotate(server.status(), "--metrics-listen"));
  metrics_server_ = *std::move(server);
  spdlog::info("metrics on http://{}/metrics", metrics_server_->address().Text());
  return absl::OkStatus();
}

absl::Status App::Impl::ListenForCalls() {
  quota_.Resize(kRpcMemoryBytes);
  std::vector<grpc::Service*> services = {inference_.get()};
  if (config_.control_listen.has_value()) {
    MOED_ASSIGN_OR_RETURN(Address control, ListenOn("control", "--control-listen", *config_.control_listen, {control_.get()}));
    listening_.push_back(std::move(control));
  } else {
    services.push_back(control_.get());
  }
  MOED_ASSIGN_OR_RETURN(address_, ListenOn("listening", "--listen", config_.listen, services));
  listening_.push_back(address_);
  const int calls = kOtherCalls + config_.serving.max_running + config_.serving.queue_capacity.value_or(0);
  call_guard_ = std::make_unique<CallGuard>(listening_, calls, config_.max_streams, kMessageBytes);
  return absl::OkStatus();
}

absl::StatusOr<Address> App::Impl::ListenOn(std::string_view what, std::string_view flag, const Address& address,
                                            const std::vector<grpc::Service*>& services) {
  RpcServerOptions options;
  options.max_message_bytes = static_cast<int>(config_.serving.max_text_bytes + kMessageMargin);
  options.certificates = certificates();
  options.reflection = config_.reflection;
  options.max_streams = config_.max_streams;
  options.max_idle_ms = config_.connection_idle_seconds * 1000;
  options.max_age_ms = static_cast<int>(std::min<int64_t>(config_.connection_age_seconds * int64_t{1000}, INT_MAX - 1));
  const bool encrypted = options.certificates != nullptr && address.path.empty();
  options.max_connections = config_.max_connections.value_or(encrypted ? kEncryptedConnections : kPlainConnections);
  auto server = RpcServer::Listen(address, services, quota_, options);
  MOED_RETURN_IF_ERROR(Annotate(server.status(), flag));
  const Address bound = (*server)->address();
  spdlog::info("{} on {}{}", what, bound.Text(), encrypted ? " (TLS)" : "");
  absl::MutexLock lock(&servers_mutex_);
  servers_.push_back(*std::move(server));
  return bound;
}

const Certificates* App::Impl::certificates() {
  absl::MutexLock lock(&access_mutex_);
  return access_->certificates();
}

const Tokens* App::Impl::tokens() {
  absl::MutexLock lock(&access_mutex_);
  return access_->tokens();
}

void App::Impl::TellHealth() {
  absl::MutexLock lock(&servers_mutex_);
  const bool ready = state_.ready();
  for (const auto& server : servers_) server->SetServing(ready);
}

ClosedConnections App::Impl::Closed() {
  ClosedConnections closed{.too_much = EndedConnections()};
  absl::MutexLock lock(&servers_mutex_);
  for (const auto& server : servers_) closed.no_room += server->refused_connections();
  return closed;
}

bool App::Impl::Alive() const {
  const auto model = state_.loaded();
  return model == nullptr || clock_.NowNanos() - model->engine->Stats().heartbeat_nanos < kHeartbeatLimitNanos;
}

bool App::Impl::RequestStop() {
  if (!started_ && state_.loaded() == nullptr) return false;  // nobody was told that it is ready
  AskFor(End::kStop);
  return true;
}

void App::Impl::Reload() {
  absl::MutexLock lock(&access_mutex_);
  if (access_ != nullptr) access_->Reload();
  if (request_log_ == nullptr || !request_log_->stands_alone()) return;
  const absl::Status reopened = request_log_->Reopen();
  if (reopened.ok()) {
    spdlog::info("SIGHUP: {} opened anew", config_.request_log);
  } else {
    spdlog::error("SIGHUP: lines of requests go on where they went: {}", std::string(reopened.message()));
  }
}

// Not ready from here on, whoever asks; what follows is Run's.
void App::Impl::AskFor(End end) {
  absl::MutexLock lock(&end_mutex_);
  state_.SetDraining();
  if (state_.loaded() == nullptr || config_.drain_delay_seconds == 0) state_.SetRefusing();
  TellHealth();
  end_ = std::max(end_, end);
}

// As on a signal, but that the process ends with the error.
void App::Impl::EndWith(const absl::Status& error) {
  spdlog::critical("the process ends: {}", StrCat(error.message()));
  {
    absl::MutexLock lock(&end_mutex_);
    failure_.Update(error);
  }
  AskFor(End::kStop);
}

absl::Status App::Impl::TakeBackDrain() {
  absl::MutexLock lock(&end_mutex_);
  if (end_ == End::kStop) return FailedPrecondition("the server is ending: a signal asked for it");
  if (end_ == End::kNone) return absl::OkStatus();
  end_ = End::kNone;
  drain_taken_back_.Notify();
  state_.TakeBackDrain();
  TellHealth();
  spdlog::info("the drain is taken back: requests are taken");
  return absl::OkStatus();
}

// Until a signal asks for the end. Drains may come and be taken back.
void App::Impl::ServeUntilStopped() {
  while (true) {
    {
      absl::MutexLock lock(&end_mutex_);
      const auto asked = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(end_mutex_) { return end_ >= End::kDrain; };
      end_mutex_.Await(absl::Condition(&asked));
    }
    if (!LetOthersNotice() || !RefuseCalls()) continue;
    absl::MutexLock lock(&end_mutex_);
    const auto decided = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(end_mutex_) { return end_ != End::kDrain; };
    end_mutex_.Await(absl::Condition(&decided));
    if (end_ == End::kStop) return;
  }
}

// Whoever watches health or /readyz sends nothing new soon; what it had sent before is not to fail.
// False: the drain was taken back meanwhile.
bool App::Impl::LetOthersNotice() {
  if (state_.refusing() || config_.drain_delay_seconds == 0) return true;
  spdlog::info("not ready any more: new requests are taken for {} s more (--drain-delay-seconds)", config_.drain_delay_seconds);
  absl::MutexLock lock(&end_mutex_);
  const auto taken_back = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(end_mutex_) { return end_ == End::kNone; };
  return !drain_taken_back_.For(end_mutex_, absl::Seconds(config_.drain_delay_seconds), taken_back);
}

bool App::Impl::RefuseCalls() {
  absl::MutexLock lock(&end_mutex_);
  if (end_ == End::kNone) return false;
  state_.SetRefusing();
  spdlog::info("draining: new requests are refused");
  return true;
}

void App::Impl::WaitForCalls() {
  spdlog::info("running requests may take {} s more (--drain-seconds)", config_.drain_seconds);
  if (live_.WaitUntilNone(absl::Seconds(config_.drain_seconds))) return;
  spdlog::warn("drain limit reached: {} requests are cancelled", live_.size());
}

// A call that never ends would hold gRPC's Shutdown for ever, and a connection that cannot be written to for as long as the
// kernel tries.
void App::Impl::ShutDownServers() {
  std::vector<std::unique_ptr<RpcServer>> servers;
  {
    absl::MutexLock lock(&servers_mutex_);
    servers = std::move(servers_);
  }
  const auto end = [&servers] {
    for (const auto& server : servers) server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  };
  EndWithin(kShutdownLimit, "a call does not end", end, {kShutdownNotice, [this] { EndAllConnections(listening_); }});
}

void App::Impl::EndServices() {
  EndWithin(kDiskLimit, "what runs every second does not end", [this] { ticker_.reset(); });
  EndWithin(kDiskLimit, "a prompt's text is not tokenised", [this] { workers_.reset(); });
}

// Those of guesses and of filling have nobody else who would tell of them.
void App::Impl::TellFailedLoads() {
  const auto model = state_.loaded();
  if (model == nullptr) return;
  const ExpertStats stats = model->expert_stats();
  if (stats.failed_loads > failed_loads_) {
    spdlog::error("{} loads of experts failed, the last: {}", stats.failed_loads, stats.last_failure);
  }
  failed_loads_ = stats.failed_loads;  // another model begins anew
}

void App::Impl::KeepForTheNextStart() {
  const auto model = ++ticks_ % kResidencyTicks == 0 ? state_.loaded() : nullptr;
  if (model == nullptr) return;
  if (ticks_ % kLearnedTicks == 0) model->keep_learned();
  model->keep_residency();
}

App::App(Config config, RoutingSource* routing) : impl_(std::make_unique<Impl>(std::move(config), routing)) {}
App::~App() = default;
absl::Status App::Start() { return impl_->Start(); }
bool App::RequestStop() { return impl_->RequestStop(); }
void App::Reload() { impl_->Reload(); }
absl::Status App::Run() { return impl_->Run(); }
std::string App::address() const { return impl_->address(); }

}  // namespace moed
