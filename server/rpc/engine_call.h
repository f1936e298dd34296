// One call to the engine from arrival to its end, transport aside: prompt work, admission, tokens, cancellation, accounting.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "core/base/clock.h"
#include "core/engine/engine.h"
#include "server/metrics/request_metrics.h"
#include "server/rpc/prompt_workers.h"
#include "server/rpc/request_log.h"
#include "server/rpc/request_translation.h"
#include "server/rpc/response_pump.h"
#include "server/rpc/sender.h"
#include "server/rpc/server_state.h"

namespace moed {

struct CallLimits {
  size_t max_prompt_bytes = 4 << 20;
  int max_unsent_tokens = 1024;                  // of one stream
  int64_t write_timeout_nanos = 30'000'000'000;  // of one message that the client does not take
};

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
  CallLimits limits;
};

// Why a call cannot be taken at the moment: loading or draining. OK otherwise.
absl::Status CheckReady(const ServerState& state, RequestMetrics& metrics);

// Held by the transport until its last callback and by the engine until OnFinish. Thread-safe.
class EngineCall : public RequestObserver, public Outgoing, public std::enable_shared_from_this<EngineCall> {
 public:
  // `session_id` etc. as in `request`; its engine.name is made up when empty. Runs on the transport's thread, does not block.
  void Start(absl::StatusOr<PendingRequest> request);
  // From the transport: the client cancelled, went away or its deadline passed. Ends the call with `status`.
  void Cancel(absl::Status status);
  // The client reads too slowly: beyond the write time-out. Called about once a second.
  void CheckStalled();
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

  const std::string& id() const { return record_.id; }    // constant once Start was called
  int queue_position() const { return queue_position_; }  // constant once the transport sends initial metadata

  void OnStarted(int prompt_tokens, int cached_tokens) override;
  void OnTokens(TokenDelta delta) override;
  void OnFinish(const FinishInfo& finish) override;
  void Send() override;

 protected:
  EngineCall(const CallEnvironment& environment, Method method);

  // Towards the pump of the message type at hand.
  virtual void Open() = 0;
  virtual PushResult Push(const TokenDelta& delta) = 0;
  virtual void Complete(const FinishInfo& finish) = 0;  // status OK
  virtual void Fail(const absl::Status& status) = 0;
  virtual bool Stalled() const = 0;
  virtual void Abandon() = 0;
  virtual void SendNow() = 0;

  void SendLater() { environment_.sender.Post(shared_from_this()); }

  const CallEnvironment& environment_;
  const LoadedModel* model_ = nullptr;  // set by Start
  std::vector<TokenId> prompt_;         // when the client wants it back; constant once submitted
  bool wants_logprobs_ = false;         // constant once submitted
  int prompt_tokens_ = 0;               // engine thread
  int cached_tokens_ = 0;

 private:
  // On a worker: Prepare = Admit, then Announce when it was admitted.
  void Prepare(PendingRequest request);
  bool Admit(PendingRequest request);
  void Announce();
  absl::Status Tokenize(PendingRequest& request);
  void Reject(absl::Status status, std::optional<Rejection> rejection);
  void CancelAs(EndReason reason, absl::Status status);
  void CancelSlow();
  void EndBroken(const std::exception& error);
  // Writes down why the call is ended; false when something else ended it before.
  bool Claim(EndReason reason, const absl::Status& status);
  void StopEngine(const absl::Status& status);
  void Deliver(TokenDelta delta);
  void Account(absl::Status status);

  const Method method_;
  const int64_t arrival_nanos_;
  int queue_position_ = 0;
  std::optional<int64_t> last_tokens_nanos_;  // engine thread

  absl::Mutex mutex_;
  std::optional<RequestId> engine_id_ ABSL_GUARDED_BY(mutex_);
  struct Cancellation {
    EndReason reason;
    absl::Status status;
    int64_t nanos;
  };
  std::optional<Cancellation> cancellation_ ABSL_GUARDED_BY(mutex_);  // the first one
  RequestRecord record_;                                              // written by Start, then by whoever ends the call
};

// The calls whose clients may be too slow. Thread-safe.
class LiveCalls {
 public:
  void Add(const std::shared_ptr<EngineCall>& call);
  void Remove(EngineCall* call);  // before the transport is gone
  int size() const;
  void CheckStalled();
  bool WaitUntilNone(absl::Duration limit);  // false when there are some still

 private:
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<EngineCall*, std::weak_ptr<EngineCall>> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moed
