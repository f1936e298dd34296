// A model that comes or goes: how far it is, and how it ended.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/clock.h"

namespace moed {

// What to load.
struct ModelOrder {
  std::string store;                          // as AllowedStore takes it
  std::optional<uint64_t> memory_budget;      // absent: the server's
  bool replace = false;                       // the model at hand goes first
  std::optional<absl::Duration> drain_limit;  // of its running requests; absent: the server's
};

enum class ChangePhase : uint8_t { kChecking, kUnloading, kReading, kStarting, kReady };
std::string_view PhaseName(ChangePhase phase);  // "checking"

// Thread-safe.
class ModelChange {
 public:
  class Watcher {
   public:
    virtual ~Watcher() = default;
    // Some time after something has changed, on any thread; must not block.
    virtual void OnChange() = 0;
  };
  struct State {
    uint64_t version = 0;  // another one: something has changed
    ChangePhase phase = ChangePhase::kChecking;
    uint64_t done_bytes = 0;  // of this phase
    uint64_t all_bytes = 0;
    double seconds = 0;  // since this phase began
    bool ended = false;
    absl::Status status;  // once it has ended
  };

  explicit ModelChange(const Clock& clock) : clock_(clock), begin_nanos_(clock.NowNanos()) {}

  // One that never was: it ended at once.
  static std::shared_ptr<ModelChange> Ended(const Clock& clock, absl::Status status) {
    auto change = std::make_shared<ModelChange>(clock);
    change->End(std::move(status));
    return change;
  }

  // By who makes the change.
  void Enter(ChangePhase phase, uint64_t all_bytes = 0);
  void AddBytes(uint64_t bytes);
  void End(absl::Status status);
  // Not OK: it is to end with this status.
  absl::Status CheckCancelled() const;

  // By who asked for it.
  void Cancel(absl::Status status);  // the first one holds
  State Now() const;
  void Watch(std::weak_ptr<Watcher> watcher);  // beside those before

 private:
  // Tells the watchers; bytes are told of a few times a second.
  void Tell(bool at_once);

  const Clock& clock_;
  mutable absl::Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_);
  absl::Status cancelled_ ABSL_GUARDED_BY(mutex_);
  int64_t begin_nanos_ ABSL_GUARDED_BY(mutex_);  // of the phase
  int64_t told_nanos_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::weak_ptr<Watcher>> watchers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moed
