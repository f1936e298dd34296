// Sends for the engine, whose thread then makes no system call for a token beyond waking this one.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace moed {

class Outgoing {
 public:
  virtual ~Outgoing() = default;
  virtual void Send() = 0;  // must not throw or block
};

// One thread. Thread-safe. Destruction sends what was posted.
class Sender {
 public:
  Sender();
  ~Sender();

  // Send is called soon, in the order of posting. Wakes the thread when it sleeps; what is posted while it sends waits for no
  // further wake-up.
  void Post(std::shared_ptr<Outgoing> outgoing);

 private:
  void Loop();
  bool Wakes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !posted_.empty(); }

  absl::Mutex mutex_;
  std::vector<std::shared_ptr<Outgoing>> posted_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace moed
