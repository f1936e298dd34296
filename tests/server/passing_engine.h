// Stands before an engine and passes everything on; tests override what they change.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/engine.h"

namespace moed {

class PassingEngine : public Engine {
 public:
  explicit PassingEngine(Engine& engine) : engine_(engine) {}
  const EngineLimits& limits() const override { return engine_.limits(); }
  absl::StatusOr<RequestId> Submit(EngineRequest request, std::shared_ptr<RequestObserver> observer) override {
    return engine_.Submit(std::move(request), std::move(observer));
  }
  bool Cancel(RequestId id, absl::Status status) override { return engine_.Cancel(id, std::move(status)); }
  std::optional<RequestId> FindRequest(const std::string& name) const override { return engine_.FindRequest(name); }
  bool HasSession(const std::string& session_id) const override { return engine_.HasSession(session_id); }
  absl::Status DeleteSession(const std::string& session_id) override { return engine_.DeleteSession(session_id); }
  std::vector<SessionInfo> ListSessions(size_t most) const override { return engine_.ListSessions(most); }
  QueueEstimate EstimateQueue(const std::string& tenant, Priority priority, int prompt_tokens) const override {
    return engine_.EstimateQueue(tenant, priority, prompt_tokens);
  }
  std::vector<TenantInfo> ListTenants() const override { return engine_.ListTenants(); }
  absl::Status BetweenSteps(std::function<void()> task) override { return engine_.BetweenSteps(std::move(task)); }
  void Drain(absl::Status refusal) override { engine_.Drain(std::move(refusal)); }
  bool Idle() const override { return engine_.Idle(); }
  void Stop(absl::Status reason) override { engine_.Stop(std::move(reason)); }
  EngineStats Stats() const override { return engine_.Stats(); }

 private:
  Engine& engine_;
};

}  // namespace moed
