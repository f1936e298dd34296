// The engine with a model: continuous batching on one thread.
#pragma once

#include <climits>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/engine/engine.h"
#include "core/engine/intake.h"
#include "core/engine/step_loop.h"
#include "core/model/spec.h"

namespace moed {

struct StepEngineOptions {
  int max_context = 0;                // tokens of prompt and answer (of a session: of all of them together)
  std::optional<int> max_new_tokens;  // most a request may ask for; absent: any number
  int max_running = 8;                // run at once
  int queue_capacity = 64;            // wait at most: max_running + queue_capacity requests are live
  int max_step_tokens = 64;           // of one step; >= max_running
  int usual_step_tokens = INT_MAX;    // at most, of one with prompts alone that waits for no experts
  int logits_rows = 64;               // that one pass over the head serves (ModelOptions)
  int max_kept_sessions = 64;         // idle conversations; the least recently used one is forgotten for a new one
  bool prefix_cache = true;           // prompts begin with what others have computed (prefix_cache.h, checkpoints.h)
  bool prompt_lookup = true;          // an answer that is alone may have several tokens a step (drafts.h)
  RequestLimits request;
  bool fast_matmul = false;                   // EngineLimits; the model has it (ModelOptions)
  std::optional<double> max_request_seconds;  // from a request's arrival to its end; absent: as long as it takes
};

// A conversation's tokens are the prompts and answers of its requests that ended with OK (without the tokens that ended the
// answers): a request that fails or is cancelled leaves its session as it was.
class StepEngine final : public Engine {
 public:
  // INVALID_ARGUMENT: sizes out of range; fewer pages of keys and values than one context needs.
  static absl::StatusOr<std::unique_ptr<StepEngine>> Create(const StepEngineOptions& options, const EngineParts& parts);
  // Most bytes that queues, kept sessions and the sampler hold.
  static uint64_t MemoryBytes(const StepEngineOptions& options, int vocabulary);
  ~StepEngine() override;  // Stop with UNAVAILABLE

  void Start();  // once: runs the loop on a thread of its own
  // One turn on the caller's thread, for an engine that was not started. False when no request is left.
  bool RunOneStep() { return loop_.Turn(); }

  const EngineLimits& limits() const override { return limits_; }
  absl::StatusOr<RequestId> Submit(EngineRequest request, std::shared_ptr<RequestObserver> observer) override;
  bool Cancel(RequestId id, absl::Status status) override { return intake_.Cancel(id, std::move(status)); }
  std::optional<RequestId> FindRequest(const std::string& name) const override { return intake_.Find(name); }
  bool HasSession(const std::string& session_id) const override { return intake_.HasSession(session_id); }
  absl::Status DeleteSession(const std::string& session_id) override { return intake_.DeleteSession(session_id); }
  std::vector<SessionInfo> ListSessions(size_t most) const override { return intake_.ListSessions(most); }
  QueueEstimate EstimateQueue(const std::string& tenant, Priority priority, int prompt_tokens) const override;
  std::vector<TenantInfo> ListTenants() const override { return intake_.ListTenants(); }
  absl::Status BetweenSteps(std::function<void()> task) override { return intake_.Post(std::move(task)); }
  void Drain(absl::Status refusal) override;
  bool Idle() const override { return intake_.Idle(); }
  void Stop(absl::Status reason) override;
  EngineStats Stats() const override;

 private:
  StepEngine(const StepEngineOptions& options, const EngineParts& parts);
  std::unique_ptr<LiveRequest> MakeLive(RequestId id, EngineRequest request, std::shared_ptr<RequestObserver> observer,
                                        std::unique_ptr<Sequence>& sequence) const;
  void Loop();

  const EngineParts parts_;
  const EngineLimits limits_;
  const std::optional<double> max_request_seconds_;
  Intake intake_;
  StepLoop loop_;
  absl::Mutex stop_mutex_;
  bool stopped_ ABSL_GUARDED_BY(stop_mutex_) = false;
  std::thread thread_;  // changed by Start and, under stop_mutex_, by Stop
};

}  // namespace moed
