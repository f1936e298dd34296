// moe.v1.Control: translates what the server knows of itself.
#pragma once

#include <atomic>
#include <functional>

#include "core/base/clock.h"
#include "moe/v1/control.grpc.pb.h"
#include "server/metrics/rate_sampler.h"
#include "server/metrics/request_metrics.h"
#include "server/rpc/server_state.h"

namespace moed {

struct ControlParts {  // all outlive the service
  const ServerState& state;
  const RateSampler& rates;
  const RequestMetrics& requests;
  const moe::v1::ServerInfo& info;  // uptime and draining aside
  const Clock& clock;
  std::function<void()> drain;  // does not block
};

// Thread-safe. Every answer is short work on the reaction's thread.
class ControlService final : public moe::v1::Control::CallbackService {
 public:
  explicit ControlService(const ControlParts& parts) : parts_(parts), start_nanos_(parts.clock.NowNanos()) {}

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context, const moe::v1::GetServerInfoRequest* request,
                                          moe::v1::ServerInfo* response) override;
  grpc::ServerUnaryReactor* GetModelInfo(grpc::CallbackServerContext* context, const moe::v1::GetModelInfoRequest* request,
                                         moe::v1::ModelInfo* response) override;
  grpc::ServerUnaryReactor* GetStats(grpc::CallbackServerContext* context, const moe::v1::GetStatsRequest* request,
                                     moe::v1::Stats* response) override;
  grpc::ServerUnaryReactor* GetCacheState(grpc::CallbackServerContext* context, const moe::v1::GetCacheStateRequest* request,
                                          moe::v1::CacheState* response) override;
  grpc::ServerUnaryReactor* GetExpertMap(grpc::CallbackServerContext* context, const moe::v1::GetExpertMapRequest* request,
                                         moe::v1::ExpertMap* response) override;
  grpc::ServerUnaryReactor* ListSessions(grpc::CallbackServerContext* context, const moe::v1::ListSessionsRequest* request,
                                         moe::v1::ListSessionsResponse* response) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context, const moe::v1::AbortRequest* request,
                                  moe::v1::AbortResponse* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const moe::v1::DrainRequest* request,
                                  moe::v1::DrainResponse* response) override;

 private:
  // UNAVAILABLE while loading.
  absl::StatusOr<const LoadedModel*> Loaded() const;
  absl::Status FillStats(const moe::v1::GetStatsRequest& request, moe::v1::Stats& out) const;
  absl::Status FillSessions(const moe::v1::ListSessionsRequest& request, moe::v1::ListSessionsResponse& out) const;
  absl::Status FillCacheState(const moe::v1::GetCacheStateRequest& request, moe::v1::CacheState& out) const;
  absl::Status FillExpertMap(const moe::v1::GetExpertMapRequest& request, moe::v1::ExpertMap& out) const;

  const ControlParts parts_;
  const int64_t start_nanos_;
  std::atomic<int> expert_maps_{0};  // that are made or sent
};

}  // namespace moed
