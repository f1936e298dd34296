// The cache's lock, which knows how often it was taken: threads that compute meet threads that read there, so each turn of a
// layer has a bound of crossings that a test holds.
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace moed {

class ABSL_LOCKABLE CountedMutex {
 public:
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    mutex_.Lock();
    ++crossings_;
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  // Held before and after; it may be released in between, which counts for nothing.
  void Await(const absl::Condition& condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) { mutex_.Await(condition); }
  // How often it was taken, by all threads.
  uint64_t crossings() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) { return crossings_; }

 private:
  absl::Mutex mutex_;
  uint64_t crossings_ = 0;
};

class ABSL_SCOPED_LOCKABLE CountedLock {
 public:
  explicit CountedLock(CountedMutex& mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~CountedLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  CountedLock(const CountedLock&) = delete;
  CountedLock& operator=(const CountedLock&) = delete;

 private:
  CountedMutex& mutex_;
};

}  // namespace moed
