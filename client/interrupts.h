// What Ctrl-C ends: the command, or less than that.
#pragma once

#include <csignal>
#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "client/client.h"

namespace moed {

// Thread-safe.
class Interrupts {
 public:
  // Blocks SIGINT and SIGTERM in this thread, which has to be the only one, and takes them on a thread of its own. The first one
  // cancels `command`, the second ends the process. `command` and this object live as long as the process.
  explicit Interrupts(Cancellation& command);

  // From now on SIGINT calls `handler` alone, on another thread, and the first SIGTERM ends the process. Empty: as at first.
  void Handle(std::function<void()> handler);

 private:
  void Watch(sigset_t signals);
  // False when nobody asked for it.
  bool Handled(int signal);

  Cancellation& command_;
  absl::Mutex mutex_;
  std::function<void()> handler_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moed
