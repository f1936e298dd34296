#include "server/model_host.h"

#include <malloc.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "core/base/byte_size.h"
#include "core/base/lost_device.h"
#include "core/base/status.h"
#include "core/base/version.h"
#include "core/serving/packed_model.h"
#include "core/store/store.h"
#include "server/startup/allowed_store.h"
#include "server/startup/limited_end.h"
#include "server/wire/error_details.h"
#include "spdlog/spdlog.h"

namespace moed {
namespace {

constexpr absl::Duration kStepLimit = absl::Seconds(120);   // for the engine to notice that it is stopped
constexpr absl::Duration kNoticeLimit = absl::Seconds(1);   // for clients to take the end of their calls
constexpr absl::Duration kAbandonLimit = absl::Seconds(5);  // for calls to end once they are given up
constexpr absl::Duration kLook = absl::Milliseconds(20);    // how often a wait looks whether it is cancelled
constexpr uint64_t kMostBeside = uint64_t{16} << 20;        // of description and tokenizer that are read beside a model

absl::Status NoModel(std::string_view why, bool soon) {
  const absl::Status status = absl::UnavailableError(StrCat("no model is loaded: ", why));
  return soon ? WithRetryAfter(status, 1) : status;
}

// At least: all that it has now, as far as the budget goes.
uint64_t BytesOnProcessor(const MemoryPlan& plan) {
  uint64_t bytes = 0;
  for (const MemoryPart& part : plan.parts) bytes += part.bytes;
  for (const MemoryPart& part : plan.device_parts) bytes += part.bytes;
  return std::min(bytes, plan.budget);
}

}  // namespace

ModelHost::ModelHost(const Config& config, const ModelHostParts& parts) : parts_(parts), config_(config) { TellServerInfo(); }

// Nobody calls any more.
ModelHost::~ModelHost() {
  EndChanges();
  parts_.counters.Retire();
  parts_.state.SetAbsent(NoModel("the server has ended", false));
}

absl::Status ModelHost::Open() {
  MOED_ASSIGN_OR_RETURN(model_, ServedModel::Open(config_, parts_.routing, parts_.clock));
  config_.memory_budget = model_->plan().memory.budget;
  largest_budget_ = *config_.memory_budget;
  TellServerInfo();
  return absl::OkStatus();
}

absl::Status ModelHost::Start() {
  thread_ = std::thread([this] { Work(); });  // who is ready lacks nothing any more
  const auto change = std::make_shared<ModelChange>(parts_.clock);
  {
    absl::MutexLock lock(&mutex_);
    change_ = change;  // nobody else's: none is begun before started_
  }
  const absl::Status loaded = LoadOpened(*change);
  change->End(loaded);
  absl::MutexLock lock(&mutex_);
  change_ = nullptr;
  started_ = loaded.ok();
  return loaded;
}

absl::StatusOr<std::shared_ptr<ModelChange>> ModelHost::Begin(Job job, bool wants_none) {
  if (ending_) return absl::UnavailableError("the server is ending");
  if (!started_) return FailedPrecondition("the server is starting: ask again when its model is loaded");
  if (change_ != nullptr) return FailedPrecondition("a model is being loaded or unloaded: ask again when it is done");
  if (wants_none && has_model_) return FailedPrecondition("a model is loaded: unload it first, or have it replaced");
  job_ = std::move(job);
  change_ = std::make_shared<ModelChange>(parts_.clock);
  return change_;
}

absl::StatusOr<std::shared_ptr<ModelChange>> ModelHost::Load(const ModelOrder& order) {
  absl::MutexLock lock(&mutex_);
  return Begin(
      [this, order](ModelChange& change) -> absl::Status {
        // Here, since a file system may hang: whoever asks waits on a thread that serves others.
        MOED_ASSIGN_OR_RETURN(std::string store, AllowedStore(order.store, config_.store, config_.models_folder));
        KeepBudget();
        MOED_RETURN_IF_ERROR(CheckBudget(order));
        Config config = config_;
        config.store = std::move(store);
        config.server_budget = *config_.memory_budget;
        if (order.memory_budget) config.memory_budget = order.memory_budget;
        return DoLoad(config, order.drain_limit.value_or(absl::Seconds(config_.drain_seconds)), change);
      },
      !order.replace);
}

absl::StatusOr<std::shared_ptr<ModelChange>> ModelHost::Unload(std::optional<absl::Duration> drain_limit) {
  const absl::Duration limit = drain_limit.value_or(absl::Seconds(config_.drain_seconds));
  absl::MutexLock lock(&mutex_);
  if (started_ && !has_model_) {
    if (change_ == nullptr) return FailedPrecondition("no model is loaded");
    change_->Cancel(absl::CancelledError("the load was cancelled by Control.UnloadModel"));
    return change_;
  }
  return Begin(
      [this, limit](ModelChange& change) { return DoUnload(NoModel("Control.UnloadModel took it out", false), limit, change); },
      false);
}

void ModelHost::Work() {
  while (true) {
    Job job;
    std::shared_ptr<ModelChange> change;
    {
      absl::MutexLock lock(&mutex_);
      const auto wakes = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ending_ || job_ != nullptr; };
      mutex_.Await(absl::Condition(&wakes));
      if (job_ == nullptr) return;
      job = std::exchange(job_, nullptr);
      change = change_;
    }
    absl::Status status = Do(job, *change);
    if (!status.ok()) spdlog::warn("the model was not changed as asked: {}", StrCat(status.message()));
    {
      absl::MutexLock lock(&mutex_);
      change_ = nullptr;
    }
    change->End(std::move(status));
  }
}

// What fails is the change: a model that is served stays, and one that was not yet goes.
absl::Status ModelHost::Do(const Job& job, ModelChange& change) {
  try {
    return job(change);
  } catch (const std::exception& error) {
    const absl::Status failed = Internal("changing the model failed: ", error.what());
    bool serves;
    {
      absl::MutexLock lock(&mutex_);
      serves = has_model_;
    }
    if (!serves) DropUnserved(StrCat(failed.message()));
    return failed;
  }
}

absl::Status ModelHost::CheckBeside(const Config& config) const {
  const absl::Status opened = StoreReader::Open(config.store, {kMostBeside, kMostBeside}).status();
  if (absl::IsOutOfRange(opened)) return FailedPrecondition(opened.message(), " beside a model: unload that first");
  MOED_RETURN_IF_ERROR(opened);
  if (model_->on_own_memory()) return OpenPackedModel(config.store).status();
  return ServedModel::Open(config, parts_.routing, parts_.clock).status();
}

absl::Status ModelHost::DoLoad(Config config, absl::Duration drain_limit, ModelChange& change) {
  MOED_RETURN_IF_ERROR(change.CheckCancelled());
  config.follows_another = true;
  spdlog::info("loading {}", config.store);
  if (model_ != nullptr) {
    MOED_RETURN_IF_ERROR(CheckBeside(config));
    MOED_RETURN_IF_ERROR(change.CheckCancelled());
    MOED_RETURN_IF_ERROR(DoUnload(NoModel("another one is being loaded", true), drain_limit, change));
  }
  SetAbsent(NoModel("one is being loaded", true));
  absl::Status status;
  if (auto opened = ServedModel::Open(config, parts_.routing, parts_.clock); opened.ok()) {
    model_ = *std::move(opened);
    status = LoadOpened(change);
  } else {
    status = opened.status();
  }
  if (status.ok()) return status;
  DropUnserved(StrCat("loading ", config.store, " failed: ", status.message()));
  return status;
}

void ModelHost::DropUnserved(std::string_view why) {
  model_.reset();
  malloc_trim(0);
  SetAbsent(NoModel(why, false));
}

absl::Status ModelHost::LoadOpened(ModelChange& change) {
  MOED_RETURN_IF_ERROR(model_->Load(
      change, [this](const absl::Status& error) { OnDeviceLost(error); }, parts_.exit));
  MOED_RETURN_IF_ERROR(Publish(change));
  change.Enter(ChangePhase::kReady);
  return absl::OkStatus();
}

// From here on a load is not cancelled, but the model unloaded.
absl::Status ModelHost::Publish(ModelChange& change) {
  {
    absl::MutexLock lock(&mutex_);
    MOED_RETURN_IF_ERROR(change.CheckCancelled());
    has_model_ = true;
  }
  const ServingPlan& plan = model_->plan();
  parts_.workers.SetLimits(static_cast<size_t>(plan.engine.max_running + plan.engine.queue_capacity), plan.prompt_queue_bytes);
  parts_.live.SetMaxUntakenBytes(plan.answers.ended);
  parts_.counters.Observe(&model_->loaded());
  TellServerInfo();
  parts_.state.SetLoaded(model_->Share());
  parts_.tell_health();
  spdlog::info("ready: {}", model_->Title());
  return absl::OkStatus();
}

void ModelHost::SetAbsent(absl::Status reason) {
  parts_.state.SetAbsent(std::move(reason));
  parts_.tell_health();
}

// The model's resizes are known by then.
absl::Status ModelHost::CheckBudget(const ModelOrder& order) const {
  if (order.memory_budget.value_or(0) <= largest_budget_) return absl::OkStatus();
  return InvalidArgument("memory_budget_bytes: ", FormatBytes(*order.memory_budget), ", at most the server's ",
                         FormatBytes(largest_budget_), " are allowed");
}

// What the model was resized to is the server's from here on. What the budget may grow to stays, and what may be asked for grows.
void ModelHost::KeepBudget() {
  if (model_ == nullptr) return;
  const std::optional<uint64_t> resized = model_->resized_budget();
  if (!resized) return;
  largest_budget_ = std::max(largest_budget_, model_->largest_budget());
  config_.max_memory_budget = std::max(config_.max_memory_budget.value_or(0), largest_budget_);
  config_.memory_budget = resized;
}

// Calls hold the model: those that run, then those whose clients have not taken their end.
absl::Status ModelHost::DoUnload(const absl::Status& reason, absl::Duration drain_limit, ModelChange& change) {
  spdlog::info("unloading {}: running requests may take {} s more", model_->store_path(), absl::ToInt64Seconds(drain_limit));
  change.Enter(ChangePhase::kUnloading);
  TellServerInfo();  // its budget, until its memory is free
  SetAbsent(reason);
  model_->Drain(reason);
  absl::Status unused = AwaitUnused(drain_limit, change);
  if (absl::IsDeadlineExceeded(unused))
    spdlog::warn("drain limit reached: the requests that are left are cancelled");
  else
    MOED_RETURN_IF_ERROR(unused);
  Stop();
  // There is no way back. A client that takes nothing loses its call, then, where the connection is stuck as well, that.
  unused = AwaitUnused(kNoticeLimit, change);
  if (absl::IsDeadlineExceeded(unused)) parts_.live.AbandonCallsTo(&model_->loaded());
  while (absl::IsDeadlineExceeded(unused)) {
    unused = AwaitUnused(kAbandonLimit, change);
    if (!absl::IsDeadlineExceeded(unused)) break;
    const std::vector<std::string> peers = parts_.live.PeersOfCallsTo(&model_->loaded());
    spdlog::warn("{} calls do not end that hold the model: their connections are ended", peers.size());
    parts_.end_connections(peers);
  }
  MOED_RETURN_IF_ERROR(unused);
  parts_.counters.Retire();
  KeepBudget();
  const absl::Status written = model_->Finish();
  if (!written.ok()) spdlog::warn("{}", StrCat(written.message()));
  {
    absl::MutexLock lock(&mutex_);
    has_model_ = false;
  }
  model_.reset();
  malloc_trim(0);
  TellServerInfo();
  spdlog::info("unloaded");
  return absl::OkStatus();
}

absl::Status ModelHost::AwaitUnused(absl::Duration limit, ModelChange& change) {
  const int64_t begun = parts_.clock.NowNanos();
  const auto left = [&] { return limit - absl::Nanoseconds(parts_.clock.NowNanos() - begun); };
  while (!model_->WaitUntilUnused(std::clamp(left(), absl::ZeroDuration(), kLook))) {
    MOED_RETURN_IF_ERROR(change.CheckCancelled());
    if (left() <= absl::ZeroDuration()) return absl::DeadlineExceededError("calls hold the model");
  }
  return absl::OkStatus();
}

void ModelHost::TellServerInfo() {
  moe::v1::ServerInfo info;
  if (model_ != nullptr) {
    info = model_->info();
  } else {
    info.set_version(Version());
    info.set_build(BuildDetails());
    info.set_memory_budget_bytes(config_.memory_budget.value_or(0));
  }
  info.set_lost_device(lost_device_);
  parts_.state.SetServerInfo(std::move(info));
}

// On the engine's thread, at the end of each request that had the error.
void ModelHost::OnDeviceLost(const absl::Status& error) {
  if (config_.device_lost == DeviceLost::kFail) return;
  absl::MutexLock lock(&mutex_);
  if (ending_ || device_is_lost_) return;
  device_is_lost_ = true;
  if (config_.device_lost == DeviceLost::kExit) return parts_.exit(Annotate(error, "--device-lost exit"));
  const auto begun = Begin([this, error](ModelChange& change) { return DoGoToProcessor(error, change); }, false);
  device_is_lost_ = begun.ok();  // else the next request tells of it, where the model stays
}

absl::Status ModelHost::DoGoToProcessor(const absl::Status& error, ModelChange& change) {
  if (model_ == nullptr) return absl::OkStatus();
  const uint64_t needed = BytesOnProcessor(model_->plan().memory);
  Config config = model_->config();
  config_.backend = config.backend = "auto";
  config_.device_budget = config.device_budget = std::nullopt;
  lost_device_ = StrCat(error.message());
  parts_.state.CountLostDevice();
  spdlog::error("the device is lost ({}): the model is loaded again on the processor (--device-lost)", lost_device_);
  MOED_RETURN_IF_ERROR(
      DoUnload(NoModel(StrCat("the device is lost, and it is being loaded again on the processor: ", lost_device_), true),
               absl::ZeroDuration(), change));
  if (const absl::Status kept = CheckGivenBack(needed); !kept.ok()) {
    parts_.exit(kept);
    return kept;
  }
  return DoLoad(config, absl::ZeroDuration(), change);
}

absl::Status ModelHost::CheckGivenBack(uint64_t bytes) const {
  const std::optional<uint64_t> left = parts_.memory_left();
  if (left.value_or(bytes) >= bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      StrCat("--device-lost cpu: the model needs ", FormatBytes(bytes), " on the processor, and ", FormatBytes(*left),
             " are left: the driver may have kept the lost device's pinned memory (", lost_device_, ")"));
}

void ModelHost::EndChanges() {
  std::shared_ptr<ModelChange> change;
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(ending_, true)) return;
    change = change_;
  }
  if (change != nullptr) change->Cancel(absl::UnavailableError("the server is ending"));
  if (thread_.joinable()) EndWithin(kStepLimit, "a change of the model does not end", [this] { thread_.join(); });
}

void ModelHost::Drain() {
  if (model_ != nullptr) model_->Drain(absl::UnavailableError("the server is draining: it takes no new requests"));
}

void ModelHost::Stop() {
  if (model_ == nullptr) return;
  EndWithin(kStepLimit, "the engine's step does not end, what was learned is not written",
            [this] { model_->Stop(absl::UnavailableError("the model was taken out before the answer was complete")); });
}

absl::Status ModelHost::Finish() {
  absl::Status finished;
  if (model_ == nullptr) return finished;
  EndWithin(kDiskLimit, "what was learned is not written", [&] { finished = model_->Finish(); });
  return finished;
}

}  // namespace moed
