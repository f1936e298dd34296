// Waiting on a mutex for a time by the monotonic clock. Abseil's own waits follow the wall clock: where that is set back, they
// take longer by as much.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace moed {

// Short enough for every clock's sums.
inline std::chrono::nanoseconds WaitOf(absl::Duration limit) {
  return absl::ToChronoNanoseconds(std::min(limit, absl::Hours(24 * 365)));
}

// Of one mutex. Thread-safe.
class TimedWait {
 public:
  // By whoever may have made a condition true, with the mutex held.
  void Notify() { changed_.notify_all(); }

  // Until the condition holds, for `limit` at most; whether it holds. `mutex` is held, but for the wait.
  template <class Condition>
  bool For(absl::Mutex& mutex, absl::Duration limit, const Condition& condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    Lockable lockable{mutex};
    return changed_.wait_until(lockable, std::chrono::steady_clock::now() + WaitOf(limit), condition);
  }

 private:
  struct Lockable {
    absl::Mutex& mutex;
    void lock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex.Lock(); }
    void unlock() ABSL_NO_THREAD_SAFETY_ANALYSIS { mutex.Unlock(); }
  };

  std::condition_variable_any changed_;
};

}  // namespace moed
