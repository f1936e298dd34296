// Where coded records are decoded: beside the threads that read and those that compute.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/store/coding.h"

namespace moed {

// First come first served. Thread-safe. Destruction runs what is left.
class DecodingThreads {
 public:
  static constexpr int kThreads = 2;
  static constexpr uint64_t kMemoryBytes = kThreads * SegmentDecoder::kMemoryBytes;

  DecodingThreads();
  ~DecodingThreads();

  void Add(std::function<void(SegmentDecoder&)> work);

 private:
  bool Wakes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_ || !work_.empty(); }
  void Run();
  void End();  // of the threads that were made

  absl::Mutex mutex_;
  std::deque<std::function<void(SegmentDecoder&)>> work_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::array<std::thread, kThreads> threads_;  // last: they use all of the above
};

}  // namespace moed
