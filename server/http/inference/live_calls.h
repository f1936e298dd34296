// What clients of the protocol over gRPC may hold at once, and who is given up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

namespace moed::http {

class LiveCall {
 public:
  virtual ~LiveCall() = default;
  // Cancels the call where its client has not taken something since before `since_nanos`.
  virtual void GiveUpIfStalled(int64_t since_nanos) = 0;
  // No further request is taken; the call ends with the last one that runs.
  virtual void EndWhenIdle() = 0;
};

struct LiveCallLimits {
  int calls = 256;         // open at once, and as many requests
  size_t bytes = 0;        // of the messages of all requests that run
  int write_seconds = 30;  // in which a client takes something of what waits for it
};

// Thread-safe. A thread of its own looks after stalled calls.
class LiveCalls {
 public:
  // What a request takes, until its end.
  class Room {
   public:
    Room(LiveCalls& calls, size_t bytes) : calls_(&calls), bytes_(bytes) {}
    Room(Room&& other) noexcept : calls_(std::exchange(other.calls_, nullptr)), bytes_(other.bytes_) {}
    Room& operator=(Room&&) = delete;
    ~Room() {
      if (calls_ != nullptr) calls_->Leave(bytes_);
    }

   private:
    LiveCalls* calls_;
    size_t bytes_;
  };

  explicit LiveCalls(const LiveCallLimits& limits);
  ~LiveCalls();  // after the last call

  // UNAVAILABLE: there is no room, or the program ends.
  absl::Status Add(const std::shared_ptr<LiveCall>& call);
  void Remove(LiveCall* call);
  absl::StatusOr<Room> Enter(size_t bytes);
  void Drain();

 private:
  void Leave(size_t bytes);
  void GiveUpStalled();
  std::vector<std::shared_ptr<LiveCall>> Calls();

  const LiveCallLimits limits_;
  absl::Mutex mutex_;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<LiveCall*, std::weak_ptr<LiveCall>> calls_ ABSL_GUARDED_BY(mutex_);
  int requests_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Notification stop_;
  std::thread ticker_;
};

}  // namespace moed::http
