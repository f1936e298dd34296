#include "server/rpc/control_service.h"

#include <string>
#include <utility>

#include "core/base/retry_after.h"
#include "core/base/status.h"
#include "server/process/process_metrics.h"
#include "server/rpc/change_reactors.h"
#include "server/rpc/control_replies.h"
#include "server/wire/authorisation.h"
#include "server/wire/error_details.h"

namespace moed {
namespace {

// Is counted until its answer is sent.
class CountedReactor final : public AnswerReactor {
 public:
  CountedReactor(StalledAnswers& untaken, grpc::CallbackServerContext* context, std::atomic<int>& count)
      : AnswerReactor(untaken, context), count_(count), before_(count++) {}
  ~CountedReactor() override { --count_; }
  int before() const { return before_; }

 private:
  std::atomic<int>& count_;
  const int before_;
};

// Of a request with the field drain_limit.
template <class Request>
absl::StatusOr<std::optional<absl::Duration>> DrainLimitOf(const Request& request) {
  if (!request.has_drain_limit()) return std::nullopt;
  const auto& limit = request.drain_limit();
  const bool sane = limit.seconds() >= 0 && limit.seconds() <= 86400 && limit.nanos() >= 0 && limit.nanos() <= 999999999;
  if (!sane) return FieldError("drain_limit", "must be at least 0 and at most a day");
  return absl::Seconds(limit.seconds()) + absl::Nanoseconds(limit.nanos());
}

absl::StatusOr<ModelOrder> OrderOf(const moe::v1::LoadModelRequest& request) {
  ModelOrder order{.store = request.store(), .replace = request.replace()};
  if (request.memory_budget_bytes() > 0) order.memory_budget = request.memory_budget_bytes();
  MOED_ASSIGN_OR_RETURN(order.drain_limit, DrainLimitOf(request));
  return order;
}

grpc::ByteBuffer ToBytes(const google::protobuf::Message& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return {&slice, 1};
}

}  // namespace

absl::StatusOr<std::shared_ptr<const LoadedModel>> ControlService::Loaded() const {
  std::shared_ptr<const LoadedModel> model = parts_.state.loaded();
  if (model != nullptr) return model;
  absl::Status absent = parts_.state.CheckLoaded();
  return absent.ok() ? absl::UnavailableError("the model was being loaded") : absent;
}

grpc::ServerUnaryReactor* ControlService::GetServerInfo(Context* context, const Bytes* request, Bytes* response) {
  return Reply<moe::v1::GetServerInfoRequest, moe::v1::ServerInfo>(
      context, Scope::kObserve, request, response, [&](const auto&, moe::v1::ServerInfo& out) {
        out = parts_.state.server_info();
        if (const auto model = parts_.state.loaded()) {
          const MemoryPlan plan = model->cache->plan();
          out.set_memory_budget_bytes(plan.budget);
          FillMemory(plan.parts, *out.mutable_memory());
        }
        out.set_uptime_seconds(SecondsBetween(start_nanos_, parts_.clock.NowNanos()));
        out.set_draining(parts_.state.draining());
        const absl::Status loaded = parts_.state.CheckLoaded();
        out.set_model_state(loaded.ok() ? "loaded" : StrCat(loaded.message()));
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* ControlService::GetModelInfo(Context* context, const Bytes* request, Bytes* response) {
  return Reply<moe::v1::GetModelInfoRequest, moe::v1::ModelInfo>(context, Scope::kObserve, request, response,
                                                                 [&](const auto&, moe::v1::ModelInfo& out) -> absl::Status {
                                                                   MOED_ASSIGN_OR_RETURN(const auto model, Loaded());
                                                                   out = model->info;
                                                                   return absl::OkStatus();
                                                                 });
}

grpc::ServerUnaryReactor* ControlService::GetStats(Context* context, const Bytes* request, Bytes* response) {
  return Reply<moe::v1::GetStatsRequest, moe::v1::Stats>(context, Scope::kObserve, request, response,
                                                         [&](const auto& asked, auto& out) { return FillStats(asked, out); });
}

grpc::ServerUnaryReactor* ControlService::GetCacheState(Context* context, const Bytes* request, Bytes* response) {
  return Reply<moe::v1::GetCacheStateRequest, moe::v1::CacheState>(
      context, Scope::kObserve, request, response, [&](const auto& asked, auto& out) { return FillCacheState(asked, out); });
}

grpc::ServerUnaryReactor* ControlService::GetExpertMap(Context* context, const Bytes* request, Bytes* response) {
  auto* reactor = new CountedReactor(untaken_, context, expert_maps_);
  const bool many = reactor->before() >= kExpertMapsAtOnce;
  const absl::Status status = Answer<moe::v1::GetExpertMapRequest, moe::v1::ExpertMap>(
      *context, Scope::kObserve, *request, *response, [&](const auto& asked, auto& out) {
        return many ? RetryAfter(ResourceExhausted("GetExpertMap: ", kExpertMapsAtOnce,
                                                   " others are being answered, and no more are at once"),
                                 kRetrySeconds)
                    : FillExpertMap(asked, out);
      });
  reactor->Send(ToGrpcStatus(status));
  return reactor;
}

grpc::ServerUnaryReactor* ControlService::SetLogLevel(Context* context, const Bytes* request, Bytes* response) {
  return Reply<moe::v1::SetLogLevelRequest, moe::v1::SetLogLevelResponse>(
      context, Scope::kControl, request, response, [&](const auto& asked, auto&) -> absl::Status {
        const absl::Status set = parts_.set_log_level(asked.level());
        return set.ok() ? set : FieldError("level", set.message());
      });
}

grpc::ServerUnaryReactor* ControlService::ListSessions(Context* context, const Bytes* request, Bytes* response) {
  return Reply<moe::v1::ListSessionsRequest, moe::v1::ListSessionsResponse>(
      context, Scope::kObserve, request, response, [&](const auto& asked, auto& out) { return FillSessions(asked, out); });
}

grpc::ServerUnaryReactor* ControlService::Abort(Context* context, const Bytes* request, Bytes* response) {
  return Reply<moe::v1::AbortRequest, moe::v1::AbortResponse>(
      context, Scope::kControl, request, response, [&](const moe::v1::AbortRequest& asked, auto&) -> absl::Status {
        if (asked.request_id().empty()) return FieldError("request_id", "empty: name the request to abort");
        MOED_ASSIGN_OR_RETURN(const auto model, Loaded());
        const std::optional<RequestId> id = model->engine->FindRequest(asked.request_id());
        if (!id.has_value() || !model->engine->Cancel(*id, absl::CancelledError("aborted by Control.Abort"))) {
          return NotFound("no live request has the id \"", asked.request_id(), "\"",
                          parts_.tokens != nullptr ? ", or several tokens' have: say NAME/ID" : "");
        }
        return absl::OkStatus();
      });
}

grpc::ServerUnaryReactor* ControlService::Drain(Context* context, const Bytes* request, Bytes* response) {
  return Reply<moe::v1::DrainRequest, moe::v1::DrainResponse>(context, Scope::kControl, request, response,
                                                              [&](const auto&, moe::v1::DrainResponse& out) {
                                                                parts_.drain();
                                                                if (const auto model = parts_.state.loaded()) {
                                                                  const EngineStats stats = model->engine->Stats();
                                                                  out.set_running(stats.running);
                                                                  out.set_waiting(stats.waiting);
                                                                }
                                                                return absl::OkStatus();
                                                              });
}

grpc::ServerUnaryReactor* ControlService::Undrain(Context* context, const Bytes* request, Bytes* response) {
  return Reply<moe::v1::UndrainRequest, moe::v1::UndrainResponse>(context, Scope::kControl, request, response,
                                                                  [&](const auto&, auto&) { return parts_.undrain(); });
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* ControlService::LoadModel(Context* context, const Bytes* request) {
  std::shared_ptr<ModelChange> change;
  Bytes none;
  absl::Status begun = Answer<moe::v1::LoadModelRequest, moe::v1::LoadModelProgress>(
      *context, Scope::kControl, *request, none, [&](const auto& asked, auto&) -> absl::Status {
        MOED_ASSIGN_OR_RETURN(const ModelOrder order, OrderOf(asked));
        MOED_ASSIGN_OR_RETURN(change, parts_.load_model(order));
        return absl::OkStatus();
      });
  if (change == nullptr) change = ModelChange::Ended(parts_.clock, std::move(begun));
  return TellOfChange(std::move(change), [&state = parts_.state](const ModelChange::State& now) {
    moe::v1::LoadModelProgress progress;
    FillProgress(now, progress);
    const auto model = state.loaded();
    if (now.phase == ChangePhase::kReady && model != nullptr) *progress.mutable_model() = model->info;
    return ToBytes(progress);
  });
}

grpc::ServerUnaryReactor* ControlService::UnloadModel(Context* context, const Bytes* request, Bytes* response) {
  std::shared_ptr<ModelChange> change;
  absl::Status begun = Answer<moe::v1::UnloadModelRequest, moe::v1::UnloadModelResponse>(
      *context, Scope::kControl, *request, *response, [&](const auto& asked, auto&) -> absl::Status {
        MOED_ASSIGN_OR_RETURN(const auto limit, DrainLimitOf(asked));
        MOED_ASSIGN_OR_RETURN(change, parts_.unload_model(limit));
        return absl::OkStatus();
      });
  if (change == nullptr) change = ModelChange::Ended(parts_.clock, std::move(begun));
  return AwaitChange(std::move(change), [response] {
    moe::v1::UnloadModelResponse answer;
    answer.set_resident_set_bytes(ReadProcessUsage().resident_bytes);
    *response = ToBytes(answer);
  });
}

}  // namespace moed
