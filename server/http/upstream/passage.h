// Large requests on their way to the daemon: so many bytes at once.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"

namespace moed::http {

// A request is on its way until the daemon says that it has taken it in, or its call has ended. What the daemon gave to no
// handler counts as a flood, which ends the connection and all of its calls (docs/reliability.md, floods). Those that wait go in
// the order in which they came. Thread-safe.
class Passage {
 public:
  // A request that is larger goes alone.
  explicit Passage(size_t most_bytes) : most_bytes_(most_bytes) {}

  // Told how a request goes: to the daemon, or nowhere, to the end of its call.
  using Go = std::function<void(bool to_daemon)>;

  // Has `go` called once, at once or when others have arrived. `call`: its name.
  void Enter(const void* call, size_t bytes, Go go);
  // It has arrived, or is cancelled: one that waits goes, to its end. Without effect where it has left before.
  void Leave(const void* call);
  // The daemon is not reached: nobody waits for it.
  void EndWaiting();

 private:
  struct Request {
    const void* call;
    size_t bytes;
    Go go;
  };
  bool HasRoom(size_t bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return bytes_ == 0 || bytes_ + bytes <= most_bytes_; }

  const size_t most_bytes_;
  absl::Mutex mutex_;
  std::deque<Request> waiting_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<const void*, size_t> under_way_ ABSL_GUARDED_BY(mutex_);  // bytes
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;                                    // of under_way_
};

}  // namespace moed::http
