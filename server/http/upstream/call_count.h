// How many calls to the daemon are under way, so that the program's end can wait for them.
#pragma once

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace moed::http {

// Thread-safe.
class CallCount {
 public:
  void Add() {
    absl::MutexLock lock(&mutex_);
    ++calls_;
  }
  void Remove() {
    absl::MutexLock lock(&mutex_);
    --calls_;
  }
  void WaitUntilNone() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(
        +[](int* calls) { return *calls == 0; }, &calls_));
  }

 private:
  absl::Mutex mutex_;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Counts for as long as it lives.
class CountedCall {
 public:
  explicit CountedCall(CallCount& count) : count_(count) { count_.Add(); }
  ~CountedCall() { count_.Remove(); }
  CountedCall(const CountedCall&) = delete;
  CountedCall& operator=(const CountedCall&) = delete;

 private:
  CallCount& count_;
};

}  // namespace moed::http
