// Lines of a log about callers whom nobody knows: few enough that floods neither fill disks nor push out the lines of others.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/base/clock.h"

namespace moed {

// Thread-safe.
class RefusedLines {
 public:
  static constexpr int kLinesASecond = 10;

  explicit RefusedLines(const Clock& clock = Clock::Real()) : clock_(clock) {}

  // Of a refusal now: nothing where it has no line, else how many before it had none.
  std::optional<uint64_t> Take();

 private:
  const Clock& clock_;
  absl::Mutex mutex_;
  int64_t second_ ABSL_GUARDED_BY(mutex_) = 0;
  int lines_ ABSL_GUARDED_BY(mutex_) = 0;  // of that second
  uint64_t left_out_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace moed
