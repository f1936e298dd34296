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
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "core/base/byte_size.h"
#include "core/base/copier.h"
#include "core/base/executor.h"
#include "core/base/status.h"
#include "core/chat/answer/answer_format.h"
#include "core/chat/model_template.h"
#include "core/engine/step_engine.h"
#include "core/expert/cold_cost.h"
#include "core/grammar/matcher_pool.h"
#include "core/io/throttled_backend.h"
#include "core/machine/system_files.h"
#include "core/model/model.h"
#include "core/model/processor_experts.h"
#include "core/serving/packed_model.h"
#include "core/serving/serving_plan.h"
#include "core/store/store.h"
#include "core/tokenizer/tokenizer.h"
#include "google/protobuf/util/json_util.h"
#include "server/descriptions.h"
#include "server/metrics/metrics_server.h"
#include "server/metrics/process_metrics.h"
#include "server/metrics/rate_sampler.h"
#include "server/metrics/server_metrics.h"
#include "server/rpc/call.h"
#include "server/rpc/control_service.h"
#include "server/rpc/inference_service.h"
#include "server/rpc/sender.h"
#include "server/startup/default_budget.h"
#include "server/startup/device_budget.h"
#include "server/startup/limited_end.h"
#include "server/startup/provider_builder.h"
#include "server/ticker.h"
#include "server/wire/access.h"
#include "server/wire/rpc_server.h"
#include "spdlog/spdlog.h"

namespace moed {
namespace {

uint64_t ResidentBytes() { return ReadNamedNumber("/proc/self/status", "VmRSS:").value_or(0) << 10; }

constexpr size_t kRpcMemoryBytes = 24 << 20;    // gRPC's own buffers, beside the budget
constexpr uint64_t kMessageMargin = 256 << 10;  // of a message beside its text, so that a text that is too long is told so
constexpr uint64_t kResidencyTicks = 10;        // of a second
// About 22 MiB beside the budget. One takes 43 KB in plain text, and up to 107 KB through TLS where clients show certificates.
constexpr int kPlainConnections = 512;
constexpr int kEncryptedConnections = 192;
constexpr int64_t kHeartbeatLimitNanos = 120'000'000'000;
constexpr absl::Duration kShutdownLimit = absl::Seconds(10);                    // for calls to end once they are cancelled
constexpr absl::Duration kStepLimit = absl::Nanoseconds(kHeartbeatLimitNanos);  // for the engine to notice that it is stopped

// What many small pieces leave free between those still in use goes back to the kernel: the allocator alone gives back its end.
void ReleaseFreeMemory() {
  constexpr size_t kWorthwhile = 2 << 20;
  if (mallinfo2().fordblks > kWorthwhile) malloc_trim(0);
}

void LogTable(std::string_view title, const std::string& table) { spdlog::info("{}\n{}", title, table); }

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
  absl::Status OpenStore();
  absl::Status ReadChatSettings(const ChatSettings& settings);
  absl::Status MakeBackend();
  absl::Status PlanMemory();
  CallLimits LimitsOfCalls() const;
  absl::Status MakeServices();
  absl::Status ServeMetrics();
  absl::Status ListenForCalls();
  // What of the device holds experts, and who computes beside it.
  absl::Status OpenDeviceSlots(DeviceSlots& device);
  absl::Status LoadModel();
  absl::Status StartEngine();
  void Publish();

  // The end, in this order. A drain ends with new requests being refused, unless it is taken back.
  enum class End { kNone, kDrain, kStop };
  void AskFor(End end);
  absl::Status TakeBackDrain();
  void ServeUntilStopped();
  bool LetOthersNotice();
  bool RefuseCalls();
  void WaitForCalls();
  void StopEngine();
  void ShutDownServers();
  void EndServices();
  absl::Status WriteTrace();
  void KeepResidency();

  absl::StatusOr<Address> ListenOn(std::string_view what, const Address& address, const std::vector<grpc::Service*>& services);
  void SetServing(bool serving);
  bool Alive() const;
  const Certificates* certificates();
  const Tokens* tokens();

  const Config config_;
  RoutingSource* const routing_;  // may be null
  Clock& clock_ = Clock::Real();
  absl::Mutex end_mutex_;
  End end_ ABSL_GUARDED_BY(end_mutex_) = End::kNone;  // grows, but that a drain may be taken back
  ServerState state_;
  moe::v1::ServerInfo info_;

  absl::Mutex access_mutex_;
  std::unique_ptr<Access> access_ ABSL_GUARDED_BY(access_mutex_);  // once it is there it stays

  std::unique_ptr<Trace> trace_;
  std::unique_ptr<StoreReader> store_;
  ModelSpec spec_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<chat::ModelTemplate> chat_template_;
  uint64_t chat_template_bytes_ = 0;  // of its text
  const chat::AnswerFormat* answer_format_ = nullptr;
  moe::v1::Sampling sampling_defaults_;
  ServingPlan plan_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<ComputeBackend> backend_;
  std::unique_ptr<ComputeBackend> processor_;  // beside a device; null: it computes nothing
  std::unique_ptr<KvPool> kv_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<ReadBackend> reads_;
  std::unique_ptr<Copier> copier_;  // null: no experts lie in memory of a device
  std::unique_ptr<ProviderBuilder> experts_;
  std::unique_ptr<ExpertProvider> routed_experts_;  // null: the provider itself
  std::optional<grammar::MatcherPool> formats_;     // the engine's requests have matchers of it
  std::unique_ptr<StepEngine> engine_;
  LoadedModel loaded_;
  Address address_;  // of Inference

  std::unique_ptr<RequestLog> request_log_;
  std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();
  RequestMetrics request_metrics_{*registry_};
  RateSampler sampler_{state_, request_metrics_, clock_};
  std::unique_ptr<LiveCalls> live_;
  Tenants tenants_{config_.max_calls_per_token};
  Sender sender_;
  std::unique_ptr<PromptWorkers> workers_;
  std::unique_ptr<CallEnvironment> environment_;
  std::unique_ptr<InferenceService> inference_;
  std::unique_ptr<ControlService> control_;
  uint64_t ticks_ = 0;           // the ticker's
  absl::Status residency_kept_;  // likewise
  std::unique_ptr<Ticker> ticker_;
  grpc::ResourceQuota quota_{"moed"};
  std::unique_ptr<MetricsServer> metrics_server_;
  absl::Mutex servers_mutex_;  // Control.Drain may come before all of them listen
  std::vector<std::unique_ptr<RpcServer>> servers_ ABSL_GUARDED_BY(servers_mutex_);
};

// Who listens answers, if only that it is loading: the addresses are there before the model is.
absl::Status App::Impl::Start() {
  MOED_RETURN_IF_ERROR(OpenAccess());
  MOED_RETURN_IF_ERROR(OpenStore());
  MOED_RETURN_IF_ERROR(MakeBackend());
  MOED_RETURN_IF_ERROR(PlanMemory());
  const std::string_view no_lookup = routing_ != nullptr ? "the routing is a recorded one" : NoPromptLookup(config_, spec_);
  plan_.engine.prompt_lookup = no_lookup.empty();
  info_ = DescribeServer(config_.serving, plan_, experts_->preset(), no_lookup);
  MOED_RETURN_IF_ERROR(MakeServices());
  MOED_RETURN_IF_ERROR(ServeMetrics());
  MOED_RETURN_IF_ERROR(ListenForCalls());
  MOED_RETURN_IF_ERROR(LoadModel());
  MOED_RETURN_IF_ERROR(StartEngine());
  Publish();
  return absl::OkStatus();
}

// What was learned is written as soon as no request uses the experts any more: calls that do not end cannot take it along.
// Metrics are served to the end.
absl::Status App::Impl::Run() {
  ServeUntilStopped();
  engine_->Drain();
  WaitForCalls();
  StopEngine();
  absl::Status written = WriteTrace();
  written.Update(experts_->Finish());
  ShutDownServers();
  EndServices();
  metrics_server_.reset();
  spdlog::info("ended");
  return written;
}

absl::Status App::Impl::OpenAccess() {
  MOED_ASSIGN_OR_RETURN(auto access, Access::Open(config_.access));
  absl::MutexLock lock(&access_mutex_);
  access_ = std::move(access);
  return absl::OkStatus();
}

absl::Status App::Impl::OpenStore() {
  MOED_ASSIGN_OR_RETURN(PackedModel model, OpenPackedModel(config_.store));
  store_ = std::move(model.store);
  spec_ = std::move(model.spec);
  tokenizer_ = std::move(model.tokenizer);
  return ReadChatSettings(model.chat);
}

absl::Status App::Impl::ReadChatSettings(const ChatSettings& settings) {
  const auto defaults = google::protobuf::util::JsonStringToMessage(
      settings.sampling_defaults.empty() ? "{}" : settings.sampling_defaults, &sampling_defaults_);
  if (!defaults.ok()) return DataLoss(store_->path(), ": its defaults for sampling are none of moe.v1.Sampling");
  chat_template_bytes_ = settings.chat_template.size();
  if (chat_template_bytes_ == 0) return absl::OkStatus();
  auto parsed = chat::ModelTemplate::Parse(settings.chat_template, settings.named_tokens);
  if (!parsed.ok()) {
    return InvalidArgument(store_->path(), ": its chat template cannot be run: ", parsed.status().message(),
                           "; moed-pack --chat-template packs it with another, or with none");
  }
  chat_template_ = *std::move(parsed);
  answer_format_ = &chat::FormatOfTemplate(settings.chat_template);
  return absl::OkStatus();
}

absl::Status App::Impl::MakeBackend() {
  executor_ = MakeThreadPool(config_.serving.threads);
  const uint64_t before = ResidentBytes();
  MOED_ASSIGN_OR_RETURN(backend_, MakeComputeBackend(config_.backend, *executor_));
  if (config_.serving.fast_matmul) MOED_RETURN_IF_ERROR(Annotate(backend_->OpenFastMatmul(), "--fast-matmul on"));
  if (&backend_->memory() != &BackendMemory::Host()) {
    const uint64_t now = ResidentBytes();
    spdlog::info("opening the device of {} took {} of the host's memory, which are not in --memory-budget", backend_->name(),
                 FormatBytes(now - std::min(now, before)));
  }
  const ComputeBackendRow& fastest = ComputeBackends().back();
  if (config_.backend != "auto" || backend_->name() == fastest.name) return absl::OkStatus();
  spdlog::info("compute backend {} is not taken: {}", fastest.name,
               fastest.supported() ? StrCat("it could be, but by name alone: --backend ", fastest.name)
                                   : StrCat(fastest.refusal().message()));
  return absl::OkStatus();
}

absl::Status App::Impl::PlanMemory() {
  uint64_t budget = config_.memory_budget.value_or(0);
  if (!config_.memory_budget.has_value()) {
    MOED_ASSIGN_OR_RETURN(const DefaultBudget found, FindDefaultBudget());
    budget = found.bytes;
    spdlog::info("--memory-budget is absent: {} ({})", FormatBytes(budget), found.reason);
  }
  const WorkingBytes device = backend_->memory().working_bytes();
  if (device.all > 0) {
    spdlog::info("the device has {}, of which {} are free: its context, its libraries and other processes take the rest",
                 FormatBytes(device.all), FormatBytes(device.free));
  }
  MOED_ASSIGN_OR_RETURN(const std::optional<uint64_t> device_budget,
                        ChooseDeviceBudget(config_.device_budget, device, backend_->name()));
  MOED_ASSIGN_OR_RETURN(experts_, ProviderBuilder::Choose(config_, *store_, spec_));
  if (routing_ != nullptr) MOED_RETURN_IF_ERROR(routing_->Check(store_->description(), spec_, experts_->preset()));
  MOED_ASSIGN_OR_RETURN(plan_, PlanServing({budget, config_.serving, store_->description(), spec_, tokenizer_->memory_bytes(),
                                            chat_template_bytes_, experts_->Needs(), !config_.trace.empty(), device_budget}));
  LogTable("memory plan", plan_.memory.Table());
  spdlog::info("prefix cache: {}", config_.serving.prefix_cache ? "on" : "off (--prefix-cache)");
  spdlog::info(
      "context of {} tokens (--max-context), {} for keys and values (--kv-budget); {} requests run (--max-running), {} wait "
      "(--queue-capacity), {} idle conversations are kept (--max-kept-sessions), steps of {} tokens (--prefill-chunk)",
      plan_.memory.max_context, FormatBytes(plan_.memory.kv), plan_.running, plan_.engine.queue_capacity,
      plan_.engine.max_kept_sessions, plan_.engine.max_step_tokens);
  return absl::OkStatus();
}

CallLimits App::Impl::LimitsOfCalls() const {
  CallLimits limits;
  limits.request = plan_.engine.request;
  // No text that fits the context is longer.
  limits.request.prompt_bytes =
      std::min(limits.request.text_bytes, tokenizer_->MostTextBytes(static_cast<size_t>(plan_.memory.max_context)));
  limits.max_unsent_bytes = plan_.answers.stream;
  limits.max_answer_bytes = plan_.answers.whole;
  return limits;
}

absl::Status App::Impl::MakeServices() {
  MOED_ASSIGN_OR_RETURN(request_log_, RequestLog::Open(config_.request_log));
  workers_ = std::make_unique<PromptWorkers>(
      PromptWorkers::Options{.threads = 1,
                             .max_jobs = static_cast<size_t>(plan_.engine.max_running + plan_.engine.queue_capacity),
                             .max_bytes = plan_.prompt_queue_bytes});
  const CallLimits limits = LimitsOfCalls();
  live_ = std::make_unique<LiveCalls>(plan_.answers.ended);
  environment_ = std::make_unique<CallEnvironment>(
      CallEnvironment{state_, *workers_, sender_, request_metrics_, *request_log_, *live_, clock_, limits, tokens(), &tenants_});
  inference_ = std::make_unique<InferenceService>(*environment_);
  control_ = std::make_unique<ControlService>(ControlParts{state_, sampler_, request_metrics_, info_, clock_,
                                                           [this] { AskFor(End::kDrain); }, [this] { return TakeBackDrain(); },
                                                           tokens()});
  ticker_ = std::make_unique<Ticker>([this] {
    sampler_.Sample();
    live_->CheckStalled();
    ReleaseFreeMemory();
    if (state_.loaded() != nullptr && ++ticks_ % kResidencyTicks == 0) KeepResidency();
  });
  return absl::OkStatus();
}

absl::Status App::Impl::ServeMetrics() {
  if (!config_.metrics_listen.has_value()) return absl::OkStatus();
  MetricsServerParts parts;
  parts.collectables = {registry_, std::make_shared<ServerMetrics>(state_, sampler_, info_), std::make_shared<ProcessMetrics>()};
  parts.alive = [this] { return Alive(); };
  parts.ready = [this] { return state_.ready(); };
  MOED_ASSIGN_OR_RETURN(metrics_server_, MetricsServer::Listen(*config_.metrics_listen, std::move(parts)));
  spdlog::info("metrics on http://{}/metrics", metrics_server_->address().Text());
  return absl::OkStatus();
}

absl::Status App::Impl::ListenForCalls() {
  quota_.Resize(kRpcMemoryBytes);
  std::vector<grpc::Service*> services = {inference_.get()};
  if (config_.control_listen.has_value()) {
    MOED_RETURN_IF_ERROR(ListenOn("control", *config_.control_listen, {control_.get()}).status());
  } else {
    services.push_back(control_.get());
  }
  MOED_ASSIGN_OR_RETURN(address_, ListenOn("listening", config_.listen, services));
  return absl::OkStatus();
}

absl::StatusOr<Address> App::Impl::ListenOn(std::string_view what, const Address& address,
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
  MOED_ASSIGN_OR_RETURN(auto server, RpcServer::Listen(address, services, quota_, options));
  const Address bound = server->address();
  spdlog::info("{} on {}{}", what, bound.Text(), encrypted ? " (TLS)" : "");
  absl::MutexLock lock(&servers_mutex_);
  servers_.push_back(std::move(server));
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

void App::Impl::SetServing(bool serving) {
  absl::MutexLock lock(&servers_mutex_);
  for (const auto& server : servers_) server->SetServing(serving);
}

absl::Status App::Impl::OpenDeviceSlots(DeviceSlots& device) {
  if (plan_.memory.device_cache == 0) return absl::OkStatus();
  MOED_ASSIGN_OR_RETURN(copier_, backend_->memory().MakeCopier());
  device = {&backend_->memory().working(), copier_.get(), plan_.memory.device_cache};
  if (!config_.processor_experts || !Model::LetsProcessorCompute(spec_)) return absl::OkStatus();
  MOED_ASSIGN_OR_RETURN(processor_, MakeComputeBackend("auto", *executor_));
  MOED_ASSIGN_OR_RETURN(device.bring_seconds_per_byte, MeasureBringing(*backend_));
  spdlog::info("experts come to the device at {}/s; kernels '{}' compute in the host's memory what is sooner done there",
               FormatBytes(static_cast<uint64_t>(1 / device.bring_seconds_per_byte)), processor_->name());
  return absl::OkStatus();
}

absl::Status App::Impl::LoadModel() {
  trace_ = std::make_unique<Trace>(clock_, plan_.trace_events);
  MOED_ASSIGN_OR_RETURN(kv_, KvPool::Create(spec_, plan_.kv, backend_->memory()));
  MOED_ASSIGN_OR_RETURN(reads_, OpenReadBackend(config_.io_backend, store_->path(), {.queue_depth = config_.io_queue_depth}));
  if (config_.read_rate) reads_ = MakeThrottledBackend(std::move(reads_), static_cast<double>(*config_.read_rate), clock_);
  DeviceSlots device;
  MOED_RETURN_IF_ERROR(OpenDeviceSlots(device));
  MOED_ASSIGN_OR_RETURN(model_,
                        Model::Load(*store_, spec_, plan_.model, *backend_, *kv_, trace_.get(), reads_.get(), processor_.get()));
  spdlog::info("kernels: {}; reads: {}", backend_->name(), reads_->description());
  const GateFn gate = [this](LayerId layer, std::span<const float> hidden, std::span<float> probabilities) {
    model_->GateProbabilities(layer, hidden, probabilities);
  };
  MOED_RETURN_IF_ERROR(experts_->Open({routing_ != nullptr ? routing_->gate() : gate, *reads_, clock_,
                                       backend_->memory().shared(), device, trace_.get(), plan_.memory}));
  if (routing_ != nullptr) routed_experts_ = routing_->Before(experts_->provider());
  return absl::OkStatus();
}

absl::Status App::Impl::StartEngine() {
  ExpertProvider& provider = routed_experts_ != nullptr ? *routed_experts_ : experts_->provider();
  const ColdModel cold{store_->all_expert_bytes(), spec_.experts, spec_.top_k};
  const auto cold_seconds = [this, cold](int tokens) { return ColdSeconds(cold, experts_->provider().Stats(), tokens); };
  const EngineParts parts{*model_, provider, *kv_, *tokenizer_, clock_, trace_.get(), experts_->preset().fidelity, cold_seconds};
  MOED_ASSIGN_OR_RETURN(engine_, StepEngine::Create(plan_.engine, parts));
  engine_->Start();
  formats_.emplace(*tokenizer_, spec_.vocabulary, plan_.format_bytes);
  return absl::OkStatus();
}

void App::Impl::Publish() {
  loaded_.engine = engine_.get();
  loaded_.tokenizer = tokenizer_.get();
  loaded_.formats = &*formats_;
  loaded_.encodes = spec_.encoder.has_value();
  loaded_.chat = chat_template_ ? &*chat_template_ : nullptr;
  loaded_.answer_format = answer_format_;
  loaded_.step_parts = [this] { return trace_->Parts(); };
  loaded_.expert_stats = [this] { return experts_->provider().Stats(); };
  loaded_.hottest_experts = [this](int top) { return experts_->provider().HottestExperts(top); };
  loaded_.expert_map = [this](uint64_t since) { return experts_->provider().ChangedExperts(since); };
  loaded_.info = DescribeModel(*store_, spec_, plan_.memory.max_context);
  *loaded_.info.mutable_sampling_defaults() = sampling_defaults_;
  loaded_.info.set_has_chat_template(chat_template_.has_value() && !loaded_.encodes);
  for (const auto& format : loaded_.info.expert_formats()) loaded_.expert_formats.push_back(format);
  loaded_.memory = plan_.memory.parts;
  loaded_.backends.set_compute_backend(std::string(backend_->name()));
  loaded_.backends.set_io_backend(std::string(reads_->name()));
  loaded_.backends.set_io_backend_reason(reads_->description());
  state_.SetLoaded(loaded_);
  SetServing(true);
  if (state_.draining()) SetServing(false);  // Control.Drain came while loading
  spdlog::info("ready: {} ({} layers, {} experts of which {} at a time) from {}", spec_.family, spec_.layers, spec_.experts,
               spec_.top_k, store_->path());
}

bool App::Impl::Alive() const {
  const LoadedModel* model = state_.loaded();
  return model == nullptr || clock_.NowNanos() - model->engine->Stats().heartbeat_nanos < kHeartbeatLimitNanos;
}

bool App::Impl::RequestStop() {
  if (state_.loaded() == nullptr) return false;
  AskFor(End::kStop);
  return true;
}

void App::Impl::Reload() {
  absl::MutexLock lock(&access_mutex_);
  if (access_ != nullptr) access_->Reload();
}

// Not ready from here on, whoever asks; what follows is Run's.
void App::Impl::AskFor(End end) {
  absl::MutexLock lock(&end_mutex_);
  state_.SetDraining();
  if (state_.loaded() == nullptr) state_.SetRefusing();
  SetServing(false);
  end_ = std::max(end_, end);
}

absl::Status App::Impl::TakeBackDrain() {
  absl::MutexLock lock(&end_mutex_);
  if (end_ == End::kStop) return FailedPrecondition("the server is ending: a signal asked for it");
  if (end_ == End::kNone) return absl::OkStatus();
  end_ = End::kNone;
  state_.TakeBackDrain();
  if (state_.loaded() != nullptr) SetServing(true);
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
  return !end_mutex_.AwaitWithTimeout(absl::Condition(&taken_back), absl::Seconds(config_.drain_delay_seconds));
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
  if (live_->WaitUntilNone(absl::Seconds(config_.drain_seconds))) return;
  const EngineStats stats = engine_->Stats();
  spdlog::warn("drain limit reached: {} running and {} waiting requests are cancelled", stats.running, stats.waiting);
}

void App::Impl::StopEngine() {
  EndWithin(kStepLimit, "the engine's step does not end, what was learned is not written",
            [this] { engine_->Stop(absl::UnavailableError("the server ended before the answer was complete")); });
}

// A call that never ends would hold gRPC's Shutdown for ever.
void App::Impl::ShutDownServers() {
  std::vector<std::unique_ptr<RpcServer>> servers;
  {
    absl::MutexLock lock(&servers_mutex_);
    servers = std::move(servers_);
  }
  EndWithin(kShutdownLimit, "a call does not end", [&servers] {
    for (const auto& server : servers) server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  });
}

void App::Impl::EndServices() {
  ticker_.reset();
  workers_.reset();
}

void App::Impl::KeepResidency() {
  const absl::Status kept = experts_->KeepResidency();
  if (!kept.ok() && residency_kept_.ok()) spdlog::warn("{}", StrCat(kept.message()));
  residency_kept_ = kept;
}

absl::Status App::Impl::WriteTrace() {
  if (config_.trace.empty()) return absl::OkStatus();
  const absl::Status written = Annotate(trace_->WriteJson(config_.trace), "--trace");
  if (written.ok()) spdlog::info("trace written to {} ({} events did not fit)", config_.trace, trace_->dropped());
  return written;
}

App::App(Config config, RoutingSource* routing) : impl_(std::make_unique<Impl>(std::move(config), routing)) {}
App::~App() = default;
absl::Status App::Start() { return impl_->Start(); }
bool App::RequestStop() { return impl_->RequestStop(); }
void App::Reload() { impl_->Reload(); }
absl::Status App::Run() { return impl_->Run(); }
std::string App::address() const { return impl_->address(); }

}  // namespace moed
