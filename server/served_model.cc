#include "server/served_model.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "core/base/byte_size.h"
#include "core/base/status.h"
#include "core/expert/cold_cost.h"
#include "core/io/file.h"
#include "core/io/metered_backend.h"
#include "core/io/throttled_backend.h"
#include "core/machine/system_files.h"
#include "core/model/processor_experts.h"
#include "core/serving/packed_model.h"
#include "google/protobuf/util/json_util.h"
#include "server/descriptions.h"
#include "server/rpc/control_replies.h"
#include "server/rpc/inference_limits.h"
#include "server/startup/default_budget.h"
#include "server/startup/device_budget.h"
#include "server/startup/open_kv_spill.h"
#include "spdlog/spdlog.h"

namespace moed {
namespace {

// Of the host, what opening the device took, which stays with the process: a model that follows finds it open.
std::atomic<uint64_t> bytes_of_device = 0;

uint64_t BytesBesideBudget() { return kBesideBudgetBytes + bytes_of_device; }

uint64_t ResidentBytes() { return ReadNamedNumber("/proc/self/status", "VmRSS:").value_or(0) << 10; }

void LogTable(std::string_view title, const std::string& table) { spdlog::info("{}\n{}", title, table); }

}  // namespace

absl::StatusOr<std::unique_ptr<ServedModel>> ServedModel::Open(const Config& config, RoutingSource* routing, Clock& clock) {
  // Not make_unique: the constructor is private.
  std::unique_ptr<ServedModel> model(new ServedModel(config, routing, clock));
  MOED_RETURN_IF_ERROR(model->OpenStore());
  MOED_RETURN_IF_ERROR(CheckKvSpill(config.kv_spill, model->spec_));
  MOED_RETURN_IF_ERROR(model->MakeBackend());
  MOED_RETURN_IF_ERROR(model->PlanMemory());
  MOED_RETURN_IF_ERROR(model->experts_->CheckKept());
  const std::string_view no_lookup = routing != nullptr ? "the routing is a recorded one" : NoPromptLookup(config, model->spec_);
  model->plan_.engine.prompt_lookup = no_lookup.empty();
  model->info_ = DescribeServer(config.serving, model->plan_, model->experts_->preset(), no_lookup);
  return model;
}

ServedModel::~ServedModel() {
  if (cache_ != nullptr) Stop(absl::UnavailableError("the model ends"));
}

absl::Status ServedModel::Load(ModelChange& change, ErrorHandler device_lost, ErrorHandler engine_failed) {
  change.Enter(ChangePhase::kReading, store_->description().trunk_bytes);
  MOED_RETURN_IF_ERROR(LoadWeights(change));
  MOED_RETURN_IF_ERROR(change.CheckCancelled());
  change.Enter(ChangePhase::kStarting);
  MOED_RETURN_IF_ERROR(StartEngine(std::move(engine_failed)));
  Describe(std::move(device_lost));
  return absl::OkStatus();
}

std::string ServedModel::Title() const {
  return StrCat(spec_.family, " (", spec_.layers, " layers, ", spec_.experts, " experts of which ", spec_.top_k,
                " at a time) from ", store_->path());
}

std::optional<uint64_t> ServedModel::resized_budget() const {
  return cache_ == nullptr ? std::nullopt : cache_->resized_budget();
}

moe::v1::ServerInfo ServedModel::info() const {
  const MemoryPlan memory = cache_ == nullptr ? plan_.memory : cache_->plan();
  moe::v1::ServerInfo info = info_;
  info.set_memory_budget_bytes(memory.budget);
  FillMemory(memory.parts, *info.mutable_memory());
  return info;
}

uint64_t ServedModel::largest_budget() const { return cache_ == nullptr ? plan_.memory.budget : cache_->largest_budget(); }

absl::Status ServedModel::OpenStore() {
  MOED_ASSIGN_OR_RETURN(PackedModel model, OpenPackedModel(config_.store));
  store_ = std::move(model.store);
  spec_ = std::move(model.spec);
  tokenizer_ = std::move(model.tokenizer);
  return ReadChatSettings(model.chat);
}

absl::Status ServedModel::ReadChatSettings(const ChatSettings& settings) {
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

absl::Status ServedModel::MakeBackend() {
  executor_ = MakeThreadPool(config_.serving.threads);
  const uint64_t before = ResidentBytes();
  MOED_ASSIGN_OR_RETURN(backend_, MakeComputeBackend(config_.backend, *executor_));
  if (config_.serving.fast_matmul) MOED_RETURN_IF_ERROR(Annotate(backend_->OpenFastMatmul(), "--fast-matmul on"));
  if (&backend_->memory() != &BackendMemory::Host()) {
    const uint64_t now = ResidentBytes(), took = now - std::min(now, before);
    bytes_of_device = std::max(bytes_of_device.load(), took);
    spdlog::info("opening the device of {} took {} of the host's memory, which are not in --memory-budget", backend_->name(),
                 FormatBytes(took));
  }
  const ComputeBackendRow& fastest = ComputeBackends().back();
  // Whether there is a device is not asked: what its driver maps and starts would stay.
  if (config_.backend == "auto")
    spdlog::info("compute backend {} is taken by name alone: --backend {}", fastest.name, fastest.name);
  return absl::OkStatus();
}

absl::Status ServedModel::PlanMemory() {
  uint64_t budget = config_.memory_budget.value_or(0);
  if (!config_.memory_budget.has_value()) {
    MOED_ASSIGN_OR_RETURN(const DefaultBudget found, FindDefaultBudget(/*root=*/"", /*others=*/0, bytes_of_device));
    budget = found.bytes;
    spdlog::info("--memory-budget is absent: {} ({})", FormatBytes(budget), found.reason);
  } else {
    MOED_RETURN_IF_ERROR(Annotate(CheckMachineHas(budget, BytesBesideBudget()), "--memory-budget"));
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
  MOED_ASSIGN_OR_RETURN(
      plan_, PlanServing({budget, config_.serving, store_->description(), spec_, tokenizer_->memory_bytes(), chat_template_bytes_,
                          experts_->Needs(), !config_.trace.empty(), device_budget, !config_.record_routing.empty()}));
  MOED_RETURN_IF_ERROR(PlanGrowth());
  LogTable("memory plan", plan_.memory.Table());
  spdlog::info("prefix cache: {}", config_.serving.prefix_cache ? "on" : "off (--prefix-cache)");
  spdlog::info(
      "context of {} tokens (--max-context), {} for keys and values (--kv-budget); {} requests run (--max-running), {} wait "
      "(--queue-capacity), {} idle conversations are kept (--max-kept-sessions), steps of {} tokens (--prefill-chunk)",
      plan_.memory.max_context, FormatBytes(plan_.memory.kv), plan_.running, plan_.engine.queue_capacity,
      plan_.engine.max_kept_sessions, plan_.engine.max_step_tokens);
  return absl::OkStatus();
}

// Memory that a device reads where it is cannot be reserved without being taken.
absl::Status ServedModel::PlanGrowth() {
  const bool may_grow = &backend_->memory() == &BackendMemory::Host();
  most_budget_ = config_.max_memory_budget.value_or(std::max(plan_.memory.budget, may_grow ? config_.server_budget : 0));
  if (!config_.max_memory_budget) return absl::OkStatus();
  const auto refused = [&](const auto&... why) {
    return InvalidArgument("--max-memory-budget ", FormatBytes(most_budget_), ": ", why...);
  };
  if (most_budget_ < plan_.memory.budget) return refused("less than the memory budget of ", FormatBytes(plan_.memory.budget));
  if (most_budget_ == plan_.memory.budget) return absl::OkStatus();
  if (!may_grow) {
    return refused("compute backend ", backend_->name(), " reads the expert cache where it is, which then keeps its size");
  }
  return Annotate(CheckMachineHas(most_budget_, BytesBesideBudget()), "--max-memory-budget");
}

CallLimits ServedModel::LimitsOfCalls() const {
  CallLimits limits;
  limits.request = plan_.engine.request;
  // No text that fits the context is longer.
  limits.request.prompt_bytes =
      std::min(limits.request.text_bytes, tokenizer_->MostTextBytes(static_cast<size_t>(plan_.memory.max_context)));
  limits.max_unsent_bytes = plan_.answers.stream;
  limits.max_answer_bytes = plan_.answers.whole;
  return limits;
}

absl::Status ServedModel::OpenDeviceSlots(DeviceSlots& device) {
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

absl::Status ServedModel::LoadWeights(ModelChange& change) {
  trace_ = std::make_unique<Trace>(clock_, plan_.trace_events);
  MOED_ASSIGN_OR_RETURN(kv_, KvPool::Create(spec_, plan_.kv, backend_->memory()));
  MOED_ASSIGN_OR_RETURN(kv_spill_, OpenKvSpill(config_.kv_spill, plan_.kv_spill, *kv_, clock_));
  MOED_ASSIGN_OR_RETURN(const Buffer probe, backend_->memory().shared().Allocate(kPageBytes));
  MOED_ASSIGN_OR_RETURN(reads_, OpenReadBackend(config_.io_backend, store_->path(),
                                                {.queue_depth = config_.io_queue_depth, .probe = probe.span()}));
  if (config_.read_rate) reads_ = MakeThrottledBackend(std::move(reads_), static_cast<double>(*config_.read_rate), clock_);
  DeviceSlots device;
  MOED_RETURN_IF_ERROR(OpenDeviceSlots(device));
  const std::unique_ptr<ReadBackend> metered = MakeMeteredBackend(*reads_, [&change](uint64_t bytes) {
    change.AddBytes(bytes);
    return change.CheckCancelled();
  });
  MOED_ASSIGN_OR_RETURN(model_, Model::Load({.store = *store_,
                                             .spec = spec_,
                                             .backend = *backend_,
                                             .kv = *kv_,
                                             .trace = trace_.get(),
                                             .trunk = metered.get(),
                                             .rows = reads_.get(),
                                             .processor = processor_.get()},
                                            plan_.model));
  spdlog::info("kernels: {}; reads: {}", backend_->name(), reads_->description());
  const GateFn gate = [this](LayerId layer, std::span<const float> hidden, std::span<float> probabilities) {
    model_->GateProbabilities(layer, hidden, probabilities);
  };
  MOED_ASSIGN_OR_RETURN(const MemoryPlan most, ResizePlan(plan_.memory, most_budget_));
  MOED_RETURN_IF_ERROR(experts_->Open({routing_ != nullptr ? routing_->gate() : gate, *reads_, clock_,
                                       backend_->memory().shared(), device, trace_.get(), plan_.memory, most.cache}));
  if (routing_ != nullptr) routed_experts_ = routing_->Before(experts_->provider());
  return absl::OkStatus();
}

absl::Status ServedModel::StartEngine(ErrorHandler failed) {
  ExpertProvider& provider = routed_experts_ != nullptr ? *routed_experts_ : experts_->provider();
  const double share = StoredShare(store_->description(), kReferencePrecision);
  const ColdModel cold{store_->all_expert_bytes(), spec_.experts, spec_.top_k, share};
  const auto cold_seconds = [this, cold](int tokens) { return ColdSeconds(cold, experts_->provider().Stats(), tokens); };
  const EngineParts parts{
      *model_,      provider,         *kv_, *tokenizer_, clock_, trace_.get(), experts_->preset().fidelity, kv_spill_.get(),
      cold_seconds, std::move(failed)};
  MOED_ASSIGN_OR_RETURN(engine_, StepEngine::Create(plan_.engine, parts));
  cache_ = std::make_unique<ServedCache>(*experts_, *engine_, plan_.memory, most_budget_);
  engine_->Start();
  formats_.emplace(*tokenizer_, spec_.vocabulary, plan_.format_bytes);
  tool_schemas_.emplace(plan_.tool_schema_bytes);
  return absl::OkStatus();
}

void ServedModel::Describe(ErrorHandler device_lost) {
  loaded_.limits = LimitsOfCalls();
  loaded_.messages = std::make_shared<InferenceLimits>(loaded_.limits.request);
  loaded_.engine = engine_.get();
  loaded_.cache = cache_.get();
  loaded_.tokenizer = tokenizer_.get();
  loaded_.formats = &*formats_;
  loaded_.tool_schemas = &*tool_schemas_;
  loaded_.without_conversations = spec_.encoder ? "an encoder-decoder" : spec_.prefix ? "a prefix-LM" : "";
  loaded_.chat = chat_template_ ? &*chat_template_ : nullptr;
  loaded_.answer_format = answer_format_;
  loaded_.step_parts = [this] { return trace_->Parts(); };
  loaded_.expert_stats = [this] { return experts_->provider().Stats(); };
  loaded_.hottest_experts = [this](int top) { return experts_->provider().HottestExperts(top); };
  loaded_.expert_map = [this](uint64_t since) { return experts_->provider().ChangedExperts(since); };
  loaded_.info = DescribeModel(*store_, spec_, plan_.memory.max_context);
  *loaded_.info.mutable_sampling_defaults() = sampling_defaults_;
  loaded_.info.set_has_chat_template(chat_template_.has_value() && loaded_.without_conversations.empty());
  loaded_.keep_residency = [this] { cache_->KeepResidency(); };
  loaded_.keep_learned = [this] { cache_->KeepLearned(); };
  loaded_.device_lost = std::move(device_lost);
  info_.set_compute_backend(std::string(backend_->name()));
  info_.set_io_backend(std::string(reads_->name()));
  info_.set_io_backend_reason(reads_->description());
}

std::shared_ptr<const LoadedModel> ServedModel::Share() {
  return {&loaded_, [this](const LoadedModel*) { unused_.Notify(); }};
}

void ServedModel::Stop(absl::Status reason) {
  engine_->Stop(std::move(reason));
  cache_->End();
}

absl::Status ServedModel::Finish() {
  absl::Status written = WriteTrace();
  written.Update(experts_->Finish());
  return written;
}

// The trace of the model before stays.
std::string ServedModel::TracePath() const {
  std::string path = config_.trace;
  if (!config_.follows_another) return path;
  for (int number = 2; path == config_.trace || !IsAbsent(path); ++number) path = StrCat(config_.trace, ".", number);
  return path;
}

absl::Status ServedModel::WriteTrace() {
  if (config_.trace.empty()) return absl::OkStatus();
  const std::string path = TracePath();
  const absl::Status written = Annotate(trace_->WriteJson(path), "--trace");
  if (written.ok()) spdlog::info("trace written to {} ({} events did not fit)", path, trace_->dropped());
  return written;
}

}  // namespace moed
