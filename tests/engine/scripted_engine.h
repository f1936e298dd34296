// An engine without a model: answers from a script, so that servers and clients can be tested without one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/base/clock.h"
#include "core/engine/engine.h"
#include "core/engine/intake.h"

namespace moed {

// What one request gets: OnStarted, then one delta a step, and its end with the last of them. Without deltas it ends a step after
// it started.
struct Script {
  int queue_steps = 0;    // spent waiting beside the wait for a free place
  int prefill_steps = 0;  // between OnStarted and the first delta
  std::vector<TokenDelta> deltas;
  FinishInfo finish;  // counts of tokens, seed and timings are filled in by the engine
};

// One delta for each character of `text`, which is whole UTF-8; token ids 0, 1, 2, ...; ends with kStop.
Script ScriptOfText(std::string_view text);

// Admission, validation, queueing, sessions, cancellation, time limits, drain and stop as StepEngine has them. Sampling and
// stopping parameters do not change the script, but max_new_tokens cuts it off (kLength), delta by delta.
class ScriptedEngine final : public Engine {
 public:
  // Called on the engine's thread.
  using ScriptFor = std::function<Script(const EngineRequest&)>;

  ScriptedEngine(const EngineLimits& limits, const Clock& clock, ScriptFor script_for);
  ~ScriptedEngine() override;

  // One step for every running request, on the caller's thread, which is then the engine's. False when no request is left.
  bool Step();
  // Once, and then no Step: `steps_per_second` on a thread of its own.
  void RunFreely(double steps_per_second);
  // What EstimateQueue goes by; nothing was measured before.
  void Measure(double seconds_per_end, double prefill_seconds);

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
  struct Play {
    std::unique_ptr<LiveRequest> live;
    Script script;
    size_t next_delta = 0;
    int completion_tokens = 0;
  };

  bool Turn();
  void Loop(absl::Duration pause);
  void Receive();
  void EndCancelledAndOverdue();
  std::optional<FinishInfo> Advance(Play& play);  // the end, when it is reached
  void Finish(size_t index, FinishInfo finish);
  void EndAll();
  void TellRunning();

  const EngineLimits limits_;
  const Clock& clock_;
  const ScriptFor script_for_;
  Intake intake_;
  std::vector<Play> plays_;      // engine's thread; in order of arrival, running ones first
  Cancellations cancellations_;  // engine's thread

  mutable absl::Mutex stats_mutex_;
  EngineStats stats_ ABSL_GUARDED_BY(stats_mutex_);
  std::optional<double> seconds_per_end_ ABSL_GUARDED_BY(stats_mutex_);
  std::optional<double> prefill_seconds_ ABSL_GUARDED_BY(stats_mutex_);
  absl::Mutex stop_mutex_;
  bool stopped_ ABSL_GUARDED_BY(stop_mutex_) = false;
  std::thread thread_;  // changed by RunFreely and, under stop_mutex_, by Stop
};

}  // namespace moed
