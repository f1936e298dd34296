// The model that is served, or none. It comes and goes while the daemon serves: one change at a time, on a thread of its own, and
// never the memory of two models.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/clock.h"
#include "core/machine/control_groups.h"
#include "server/metrics/model_counters.h"
#include "server/rpc/call.h"
#include "server/rpc/model_change.h"
#include "server/rpc/prompt_workers.h"
#include "server/rpc/server_state.h"
#include "server/served_model.h"
#include "server/startup/config.h"
#include "server/startup/routing_source.h"

namespace moed {

struct ModelHostParts {  // all outlive the host
  ServerState& state;
  ModelCounters& counters;
  PromptWorkers& workers;
  LiveCalls& live;
  RoutingSource* routing;  // may be null
  Clock& clock;
  std::function<void()> tell_health;  // the state has changed
  std::function<void(std::span<const std::string> peers)> end_connections;
  std::function<void(const absl::Status&)> exit;  // the process is to end, and with this error; does not block
  std::function<std::optional<uint64_t>()> memory_left = [] { return MemoryLeft(); };
};

// Open, Start, EndChanges and what follows it, in this order; after Open, Load and Unload at any time from any thread.
class ModelHost {
 public:
  ModelHost(const Config& config, const ModelHostParts& parts);
  ~ModelHost();

  // The start: opens the store of the configuration and plans for it, then loads it.
  absl::Status Open();
  absl::Status Start();

  // Begin a change, or say at once why not: FAILED_PRECONDITION until Start has returned, while there is another change, or a
  // model and no `replace`. Which store it may be is looked at by the change itself.
  absl::StatusOr<std::shared_ptr<ModelChange>> Load(const ModelOrder& order);
  // Of a load under way it cancels the load.
  absl::StatusOr<std::shared_ptr<ModelChange>> Unload(std::optional<absl::Duration> drain_limit);

  // The end, in this order. There are no changes any more: one under way is given up.
  void EndChanges();
  void Drain();
  void Stop();
  absl::Status Finish();

 private:
  using Job = std::function<absl::Status(ModelChange&)>;

  absl::StatusOr<std::shared_ptr<ModelChange>> Begin(Job job, bool wants_none) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Work();
  absl::Status Do(const Job& job, ModelChange& change);
  absl::Status DoLoad(Config config, absl::Duration drain_limit, ModelChange& change);
  absl::Status CheckBudget(const ModelOrder& order) const;
  void KeepBudget();
  absl::Status DoUnload(const absl::Status& reason, absl::Duration drain_limit, ModelChange& change);
  // What can be known of the model before the one at hand goes.
  absl::Status CheckBeside(const Config& config) const;
  void DropUnserved(std::string_view why);
  absl::Status LoadOpened(ModelChange& change);
  absl::Status Publish(ModelChange& change);
  absl::Status AwaitUnused(absl::Duration limit, ModelChange& change);  // DEADLINE_EXCEEDED: it is used
  void SetAbsent(absl::Status reason);
  void TellServerInfo();
  void OnDeviceLost(const absl::Status& error);
  // RESOURCE_EXHAUSTED where the machine has less than `bytes`: a driver may keep the pinned memory of a device that is lost.
  absl::Status CheckGivenBack(uint64_t bytes) const;
  absl::Status DoGoToProcessor(const absl::Status& error, ModelChange& change);

  const ModelHostParts parts_;
  Config config_;  // of the start; changed by the host's thread alone, once a device is lost or a model was resized
  std::unique_ptr<ServedModel> model_;  // the host's thread's between Start and EndChanges
  std::string lost_device_;             // likewise
  uint64_t largest_budget_ = 0;         // likewise: that the server has had, and that may be asked for

  absl::Mutex mutex_;
  bool started_ ABSL_GUARDED_BY(mutex_) = false;
  bool has_model_ ABSL_GUARDED_BY(mutex_) = false;
  bool device_is_lost_ ABSL_GUARDED_BY(mutex_) = false;
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<ModelChange> change_ ABSL_GUARDED_BY(mutex_);  // under way
  Job job_ ABSL_GUARDED_BY(mutex_);                              // of change_, until it is begun
  std::thread thread_;
};

}  // namespace moed
