// What callers' threads and the engine's thread share: requests on their way in, cancellations, idle sessions.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/timed_wait.h"
#include "core/engine/admission.h"
#include "core/engine/engine.h"
#include "core/engine/live_request.h"
#include "core/engine/session_table.h"
#include "core/engine/tenant_table.h"
#include "core/model/kv_pool.h"

namespace moed {

using Cancellations = std::map<RequestId, absl::Status>;  // a table as Admission's

// Thread-safe.
class Intake {
 public:
  // `max_running`: requests that are computed at once. `capacity`: live ones, those included.
  Intake(int max_running, int capacity, int max_kept_sessions)
      : admission_(capacity), tenants_(max_running, capacity), sessions_(max_kept_sessions) {}

  // Callers' threads.
  // `request` was checked but for its session. `build` makes the live request from the id and the sequence, which has begun with
  // its prompt; it may take `request` apart, and takes the sequence when nothing can fail any more. When it throws, nothing has
  // happened.
  absl::StatusOr<RequestId> Submit(const EngineRequest& request, const EngineLimits& limits,
                                   absl::FunctionRef<std::unique_ptr<LiveRequest>(RequestId, std::unique_ptr<Sequence>&)> build);
  bool Cancel(RequestId id, absl::Status status);
  std::optional<RequestId> Find(const std::string& name) const;
  bool HasSession(const std::string& session) const;
  absl::Status DeleteSession(const std::string& session);
  std::vector<SessionInfo> ListSessions(size_t most) const;
  absl::Status Post(std::function<void()> task);  // Engine::BetweenSteps
  void Close(absl::Status reason);                // Submit fails with it from now on
  void Stop(absl::Status reason);                 // the loop shall end and Submit fails; the first reason stays
  void Wake();                                    // WaitForWork returns
  bool Idle() const;                              // no live request whose OnFinish has not returned
  int live() const;                               // submitted and not released
  std::vector<TenantInfo> ListTenants() const;
  // What one would find that came in now: `position`, and whether it would wait at all.
  struct Standing {
    int position = 0;
    bool waits = false;
  };
  Standing StandingOf(const std::string& tenant, Priority priority) const;
  int sessions() const;  // idle and busy

  // The engine's thread.
  std::optional<absl::Status> stop_reason() const;
  void WaitForWork(absl::Duration timeout);  // until requests or cancellations are there, or Wake or Stop was called
  void WaitForStop(absl::Duration timeout);
  // Moves them to the end of `requests` and into `cancellations`.
  void Receive(std::vector<std::unique_ptr<LiveRequest>>& requests, Cancellations& cancellations);
  // Sessions that were deleted, to be ended.
  std::vector<std::unique_ptr<Sequence>> TakeDeleted();
  // Tasks that were posted, in order.
  std::vector<std::function<void()>> TakeTasks();
  // Moves what was cancelled into `cancellations`; the reason of a Stop, if there was one.
  std::optional<absl::Status> Interruptions(Cancellations& cancellations);
  // For the figures of tenants: requests that are computed, [owner][Priority], and tokens of an answer.
  void SetRunning(std::span<const CountsByPriority> by_owner);
  void CountGenerated(size_t owner, int tokens);
  // Idle sessions, the one that was kept longest first, until `visit` says false. It must not call the intake.
  void VisitIdle(absl::FunctionRef<bool(Sequence&)> visit);
  // Name and session are free again; `kept` (may be null) becomes an idle session. Returns one that must be ended for it, or
  // null.
  std::unique_ptr<Sequence> Release(const LiveRequest& live, std::unique_ptr<Sequence> kept);
  void Finished();  // after OnFinish
  std::unique_ptr<Sequence> TakeOldestSession();

 private:
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return woken_ || !incoming_.empty() || !cancellations_.empty() || !deleted_.empty() || !tasks_.empty() ||
           stop_reason_.has_value();
  }
  bool Stopping() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_reason_.has_value(); }

  mutable absl::Mutex mutex_;
  TimedWait wake_;  // for the engine's thread
  Admission admission_ ABSL_GUARDED_BY(mutex_);
  TenantTable tenants_ ABSL_GUARDED_BY(mutex_);
  SessionTable sessions_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<LiveRequest>> incoming_ ABSL_GUARDED_BY(mutex_);
  Cancellations cancellations_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Sequence>> deleted_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> stop_reason_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_sequence_ ABSL_GUARDED_BY(mutex_) = 0;
  bool woken_ ABSL_GUARDED_BY(mutex_) = false;
  int unfinished_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace moed
