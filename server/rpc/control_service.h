// moe.v1.Control: translates what the server knows of itself.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "core/base/byte_share.h"
#include "core/base/clock.h"
#include "grpcpp/support/byte_buffer.h"
#include "moe/v1/control.grpc.pb.h"
#include "server/metrics/rate_sampler.h"
#include "server/metrics/request_metrics.h"
#include "server/rpc/model_change.h"
#include "server/rpc/server_state.h"
#include "server/rpc/stalled_answers.h"
#include "server/wire/tokens.h"

namespace moed {

// What answers may take that clients have not taken, beside the budget, which has maps of experts. By itself a client's gRPC
// takes no larger message; statistics of as many tenants as may have tokens are a ninth of it.
inline constexpr uint64_t kControlAnswerBytes = 4 << 20;

struct ControlParts {  // all outlive the service
  const ServerState& state;
  const RateSampler& rates;
  const RequestMetrics& requests;
  const Clock& clock;
  std::function<void()> drain;            // does not block
  std::function<absl::Status()> undrain;  // likewise
  // Likewise: they begin it.
  std::function<absl::StatusOr<std::shared_ptr<ModelChange>>(const ModelOrder&)> load_model;
  std::function<absl::StatusOr<std::shared_ptr<ModelChange>>(std::optional<absl::Duration> drain_limit)> unload_model;
  // INVALID_ARGUMENT lists the levels.
  std::function<absl::Status(const std::string& level)> set_log_level;
  const Tokens* tokens = nullptr;  // null: everybody may do everything
};

template <class Service>
using WithRawCacheMethods = moe::v1::Control::WithRawCallbackMethod_ResizeMemory<
    moe::v1::Control::WithRawCallbackMethod_PinExperts<moe::v1::Control::WithRawCallbackMethod_PrefetchExperts<
        moe::v1::Control::WithRawCallbackMethod_SaveResidency<moe::v1::Control::WithRawCallbackMethod_RestoreResidency<
            moe::v1::Control::WithRawCallbackMethod_SetLogLevel<Service>>>>>>;

template <class Service>
using WithRawControlMethods =
    moe::v1::Control::WithRawCallbackMethod_LoadModel<moe::v1::Control::WithRawCallbackMethod_UnloadModel<
        moe::v1::Control::WithRawCallbackMethod_Undrain<moe::v1::Control::WithRawCallbackMethod_Drain<
            moe::v1::Control::WithRawCallbackMethod_Abort<moe::v1::Control::WithRawCallbackMethod_ListSessions<
                moe::v1::Control::WithRawCallbackMethod_GetExpertMap<moe::v1::Control::WithRawCallbackMethod_GetCacheState<
                    moe::v1::Control::WithRawCallbackMethod_GetStats<moe::v1::Control::WithRawCallbackMethod_GetModelInfo<
                        moe::v1::Control::WithRawCallbackMethod_GetServerInfo<WithRawCacheMethods<Service>>>>>>>>>>>>;

// Thread-safe. Every answer is short work on the reaction's thread, or is given later by whoever did the work. Messages come as
// bytes, so that nothing is read of those of callers that may not ask: what changes something needs the scope "control", what is
// told "observe".
class ControlService final : public WithRawControlMethods<moe::v1::Control::Service> {
  using Bytes = grpc::ByteBuffer;
  using Context = grpc::CallbackServerContext;

 public:
  explicit ControlService(const ControlParts& parts)
      : parts_(parts), start_nanos_(parts.clock.NowNanos()), untaken_(parts.clock) {}

  // Of what clients do not take. Called about once a second, by one thread.
  void GiveUpStalled() { untaken_.GiveUpStalled(kLimitsWithoutModel.write_timeout_nanos); }

  grpc::ServerUnaryReactor* GetServerInfo(Context* context, const Bytes* request, Bytes* response) override;
  grpc::ServerUnaryReactor* GetModelInfo(Context* context, const Bytes* request, Bytes* response) override;
  grpc::ServerUnaryReactor* GetStats(Context* context, const Bytes* request, Bytes* response) override;
  grpc::ServerUnaryReactor* GetCacheState(Context* context, const Bytes* request, Bytes* response) override;
  grpc::ServerUnaryReactor* GetExpertMap(Context* context, const Bytes* request, Bytes* response) override;
  grpc::ServerUnaryReactor* ResizeMemory(Context* context, const Bytes* request, Bytes* response) override;
  grpc::ServerUnaryReactor* PinExperts(Context* context, const Bytes* request, Bytes* response) override;
  grpc::ServerUnaryReactor* PrefetchExperts(Context* context, const Bytes* request, Bytes* response) override;
  grpc::ServerUnaryReactor* SaveResidency(Context* context, const Bytes* request, Bytes* response) override;
  grpc::ServerUnaryReactor* RestoreResidency(Context* context, const Bytes* request, Bytes* response) override;
  grpc::ServerUnaryReactor* SetLogLevel(Context* context, const Bytes* request, Bytes* response) override;
  grpc::ServerUnaryReactor* ListSessions(Context* context, const Bytes* request, Bytes* response) override;
  grpc::ServerUnaryReactor* Abort(Context* context, const Bytes* request, Bytes* response) override;
  grpc::ServerUnaryReactor* Drain(Context* context, const Bytes* request, Bytes* response) override;
  grpc::ServerUnaryReactor* Undrain(Context* context, const Bytes* request, Bytes* response) override;
  grpc::ServerWriteReactor<Bytes>* LoadModel(Context* context, const Bytes* request) override;
  grpc::ServerUnaryReactor* UnloadModel(Context* context, const Bytes* request, Bytes* response) override;

 private:
  // The caller may ask, and its request is well formed.
  template <class Request>
  absl::StatusOr<Request> Admit(const grpc::CallbackServerContext& context, Scope scope, const grpc::ByteBuffer& bytes) const;
  // `begin`(request, finish): whoever gets finish calls it once, with an answer or an error, unless begin returned an error.
  template <class Request, class Response, class Begin>
  grpc::ServerUnaryReactor* ReplyLater(Context* context, const Bytes* request, Bytes* response, Begin begin);
  absl::Status ChangePins(const moe::v1::PinExpertsRequest& request, moe::v1::PinExpertsResponse& out) const;
  absl::Status Prefetch(const moe::v1::PrefetchExpertsRequest& request, moe::v1::PrefetchExpertsResponse& out) const;
  // `body`(request, answer) makes the answer.
  template <class Request, class Response, class Body>
  absl::Status Answer(const grpc::CallbackServerContext& context, Scope scope, const grpc::ByteBuffer& bytes,
                      grpc::ByteBuffer& response, Body body) const;
  template <class Request, class Response, class Body>
  grpc::ServerUnaryReactor* Reply(Context* context, Scope scope, const Bytes* request, Bytes* response, Body body);

  // UNAVAILABLE while there is none.
  absl::StatusOr<std::shared_ptr<const LoadedModel>> Loaded() const;
  absl::Status FillStats(const moe::v1::GetStatsRequest& request, moe::v1::Stats& out) const;
  void FillTenants(const Engine& engine, moe::v1::Stats& out) const;
  absl::Status FillSessions(const moe::v1::ListSessionsRequest& request, moe::v1::ListSessionsResponse& out) const;
  absl::Status FillCacheState(const moe::v1::GetCacheStateRequest& request, moe::v1::CacheState& out) const;
  absl::Status FillExpertMap(const moe::v1::GetExpertMapRequest& request, moe::v1::ExpertMap& out) const;

  const ControlParts parts_;
  const int64_t start_nanos_;
  StalledAnswers untaken_;
  ByteShare answers_{kControlAnswerBytes};
  std::atomic<int> expert_maps_{0};  // that are made or sent
};

}  // namespace moed
