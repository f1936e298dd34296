// Bytes that the program holds. It replaces operator new and mmap: for a program of its own.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace moed {

extern std::atomic<int64_t> heap_bytes;  // asked for and not given back
extern std::atomic<int64_t> heap_peak;   // the most of it since somebody set this
// Mapped and not unmapped, by this thread: others map what a lock needs at its first wait.
extern thread_local int64_t mapped_bytes;

// Bytes that `make` leaves behind.
struct Growth {
  uint64_t heap = 0;
  uint64_t mapped = 0;
};
template <class Make>
Growth GrowthOf(Make make) {
  // This thread's first wait for a lock, which maps what Abseil knows of the thread.
  absl::Mutex mutex;
  const auto never = [] { return false; };
  mutex.LockWhenWithTimeout(absl::Condition(&never), absl::ZeroDuration());
  mutex.Unlock();
  const int64_t heap = heap_bytes.load(), mapped = mapped_bytes;
  make();
  return {static_cast<uint64_t>(heap_bytes.load() - heap), static_cast<uint64_t>(mapped_bytes - mapped)};
}

}  // namespace moed
