// Tokenisation and other work too long for a gRPC reaction: few threads behind queues that are bounded in jobs and bytes.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace moed {

// Each kind has a queue of its own, and the kinds take turns: who sends texts to be tokenised turns no generation away.
enum class WorkKind : uint8_t { kPrompt, kTokenizer };
inline constexpr int kWorkKinds = 2;

// Thread-safe. Destruction runs what is queued, so that every call gets its end.
class PromptWorkers {
 public:
  struct Options {
    int threads = 1;
    size_t max_jobs = 0;   // queued, of one kind, those running aside
    size_t max_bytes = 0;  // of the queued texts of one kind; where none of its kind waits, a job always fits
  };
  explicit PromptWorkers(const Options& options);
  ~PromptWorkers();

  // Of what is submitted from now on, as the model that is served allows; `threads` stays.
  void SetLimits(size_t max_jobs, size_t max_bytes);
  // False when the queue is full. `job` must not throw.
  bool Submit(WorkKind kind, size_t bytes, std::function<void()> job);

 private:
  struct Job {
    size_t bytes;
    std::function<void()> run;
  };
  struct Queue {
    std::deque<Job> jobs;
    size_t bytes = 0;  // of `jobs`
  };
  void Loop();
  bool Wakes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The next one in turn that has a job; null when none has.
  Queue* NextQueue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Mutex mutex_;
  Options options_ ABSL_GUARDED_BY(mutex_);
  std::array<Queue, kWorkKinds> queues_ ABSL_GUARDED_BY(mutex_);
  int turn_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace moed
