// Runs a function about once a second on a thread of its own.
#pragma once

#include <functional>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/timed_wait.h"

namespace moed {

class Ticker {
 public:
  explicit Ticker(std::function<void()> tick)
      : thread_([this, tick = std::move(tick)] {
          do {
            tick();
          } while (!StopsWithinASecond());
        }) {}
  ~Ticker() {
    {
      absl::MutexLock lock(&mutex_);
      stops_ = true;
      stop_.Notify();
    }
    thread_.join();
  }

 private:
  bool StopsWithinASecond() {
    absl::MutexLock lock(&mutex_);
    return stop_.For(mutex_, absl::Seconds(1), [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stops_; });
  }

  absl::Mutex mutex_;
  TimedWait stop_;
  bool stops_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace moed
