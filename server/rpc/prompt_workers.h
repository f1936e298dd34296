// Tokenisation and other work too long for a gRPC reaction: few threads behind a queue that is bounded in jobs and bytes.
#pragma once

#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace moed {

// Thread-safe. Destruction runs what is queued, so that every call gets its end.
class PromptWorkers {
 public:
  struct Options {
    int threads = 1;
    size_t max_jobs = 0;   // queued, those running aside
    size_t max_bytes = 0;  // of their prompts; a job that is alone always fits
  };
  explicit PromptWorkers(const Options& options);
  ~PromptWorkers();

  // False when the queue is full. `job` must not throw.
  bool Submit(size_t bytes, std::function<void()> job);

 private:
  struct Job {
    size_t bytes;
    std::function<void()> run;
  };
  void Loop();
  bool Wakes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !jobs_.empty(); }

  const Options options_;
  absl::Mutex mutex_;
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of queued and running jobs
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace moed
