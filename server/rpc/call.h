// One call from arrival to its end, transport and kind of work aside: prompt work, cancellation, accounting.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "core/base/clock.h"
#include "core/base/timed_wait.h"
#include "core/engine/engine.h"
#include "server/metrics/request_metrics.h"
#include "server/rpc/prompt_workers.h"
#include "server/rpc/request_log.h"
#include "server/rpc/sender.h"
#include "server/rpc/server_state.h"
#include "server/rpc/tenants.h"
#include "server/wire/tokens.h"

namespace moed {

class LiveCalls;

// What calls need; outlives them.
struct CallEnvironment {
  const ServerState& state;
  PromptWorkers& workers;
  Sender& sender;
  RequestMetrics& metrics;
  RequestLog& log;
  LiveCalls& live;
  const Clock& clock;
  const Tokens* tokens = nullptr;  // null: everybody may ask
  Tenants* tenants = nullptr;      // with tokens
};

// Why a call cannot be taken at the moment: there is no model, or the end is near. OK otherwise.
absl::Status CheckReady(const ServerState& state, RequestMetrics& metrics);

// A request that has arrived and is not read yet.
template <class Request>
struct Arrival {
  absl::Status fits;                                                // INVALID_ARGUMENT where its message is none, or IsTooMuch
  std::string id;                                                   // its request_id; empty: made up
  std::optional<std::string> session_id;                            // where its message has one; "" = none
  size_t bytes = 0;                                                 // that it holds while it waits
  std::function<absl::StatusOr<Request>(const LoadedModel&)> read;  // called once at most, on a worker
};

// Held by the transport until its last callback, and by whatever works for it. Thread-safe.
class Call : public Outgoing, public std::enable_shared_from_this<Call> {
 public:
  // From the transport: the client cancelled, went away or its deadline passed. Ends the call with `status`.
  void Cancel(absl::Status status);
  // The client reads too slowly: beyond the write time-out. Called about once a second.
  void CheckStalled();
  // Makes what the client did not take fail soon, on the sender's thread.
  void AbandonSoon();
  // Runs `body`. An exception ends the call with INTERNAL: gRPC would swallow it and leave the client waiting, and it must not
  // reach the engine either.
  template <class Body>
  void Guarded(Body&& body) {
    try {
      body();
    } catch (const std::exception& error) {
      EndBroken(error);
    }
  }

  // Before the call begins.
  void SetCaller(Caller caller) { record_.caller = std::move(caller); }
  void SetDeadline(double seconds_left) { deadline_nanos_ = arrival_nanos_ + static_cast<int64_t>(seconds_left * 1e9); }
  // Of a caller that may not ask, or not now. Nothing of the message is read.
  void Refuse(const absl::Status& status);
  const std::string& tenant() const { return record_.caller.token; }  // "" = nobody in particular
  const std::string& peer() const { return record_.caller.peer; }
  const std::string& id() const { return record_.id; }  // constant once the call has begun
  // What the queue was when it came in; constant once the transport sends initial metadata.
  const QueueEstimate& queue() const { return queue_; }
  // The model that was served when the call came, which the call keeps; null: none was, and the call ends with the reason.
  const LoadedModel* model() const { return model_.get(); }
  bool ended() const { return cancellation().has_value(); }  // nobody waits for its answer any more
  const CallLimits& limits() const { return model_ != nullptr ? model_->limits : kLimitsWithoutModel; }

  void Send() override;

 protected:
  Call(const CallEnvironment& environment, Method method, WorkKind kind);

  // Has `work` called on a worker, unless the call ends before: not ready, too much in the message, the queue is full. Runs on
  // the transport's thread, does not block.
  void Begin(absl::Status fits, std::string id, size_t bytes, std::function<void()> work);
  // Ends a call that was not admitted.
  void Reject(absl::Status status, std::optional<Rejection> rejection);
  // The same where the status may have words of the prompt: the log has `logged` instead.
  void RejectPrivately(const absl::Status& status, std::string_view logged);
  void CancelAs(EndReason reason, absl::Status status);
  void CancelSlow();
  void Account(absl::Status status);
  void SendLater() { environment_.sender.Post(shared_from_this()); }

  struct Cancellation {
    EndReason reason;
    absl::Status status;
    int64_t nanos;
  };
  std::optional<Cancellation> cancellation() const;

  // Towards the pump of the message type at hand.
  virtual void Fail(const absl::Status& status) = 0;
  virtual bool Stalled() const = 0;
  virtual void SendNow() = 0;
  virtual void Abandon() = 0;
  // Nobody waits for the work any more.
  virtual void StopWork(const absl::Status& status) = 0;

  const CallEnvironment& environment_;
  const Method method_;
  const int64_t arrival_nanos_;
  const std::shared_ptr<const LoadedModel> model_;
  QueueEstimate queue_;
  int64_t deadline_nanos_ = 0;  // 0 = none
  RequestRecord record_;        // written until Begin, then by whoever ends the call

 private:
  void Work(const std::function<void()>& work);
  // With session and request as the client names them: without its tenant's part.
  absl::Status ForClient(const absl::Status& status) const;
  void EndBroken(const std::exception& error);
  // Writes down why the call is ended; false when something else ended it before.
  bool Claim(EndReason reason, const absl::Status& status);

  const WorkKind kind_;
  std::atomic<bool> abandon_due_{false};
  mutable absl::Mutex mutex_;
  std::optional<Cancellation> cancellation_ ABSL_GUARDED_BY(mutex_);  // the first one
};

// The calls that have not ended, and what their clients have not taken. Thread-safe.
class LiveCalls {
 public:
  // `max_untaken_bytes`: of answers that have ended; beyond, the oldest of them are abandoned.
  explicit LiveCalls(size_t max_untaken_bytes = size_t{64} << 20) : max_untaken_bytes_(max_untaken_bytes) {}

  void SetMaxUntakenBytes(size_t bytes);  // as the model that is served allows
  void Add(const std::shared_ptr<Call>& call);
  // Before Add: `call` is called so until Remove. False, and it is not: it only `wishes` so, and another one is called so.
  bool TakeName(Call* call, std::string name, bool wishes);
  void Remove(Call* call);  // before the transport is gone
  // Its answer has ended; `bytes` of it are not taken yet.
  void OnAnswered(Call* call, size_t bytes);
  int size() const;
  void CheckStalled();
  // Of calls to `model`: what their clients have not taken fails soon.
  void AbandonCallsTo(const LoadedModel* model);
  std::vector<std::string> PeersOfCallsTo(const LoadedModel* model) const;
  bool WaitUntilNone(absl::Duration limit);  // false when there are some still

 private:
  struct Entry {
    std::weak_ptr<Call> call;
    std::string name;  // in names_; empty: none
    size_t untaken_bytes = 0;
  };
  using Answered = std::list<Call*>;

  std::vector<std::shared_ptr<Call>> Calls() const;

  mutable absl::Mutex mutex_;
  size_t max_untaken_bytes_ ABSL_GUARDED_BY(mutex_);
  TimedWait removed_;
  absl::flat_hash_map<Call*, Entry> calls_ ABSL_GUARDED_BY(mutex_);
  std::multiset<std::string> names_ ABSL_GUARDED_BY(mutex_);
  Answered answered_ ABSL_GUARDED_BY(mutex_);  // the oldest first; those that were abandoned are not in it
  size_t untaken_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace moed
