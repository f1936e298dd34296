// Reads that are waited for together, by the thread that submits them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace moed {

class ReadBackend;

// Wait has to come before the end of it, and of what it was given.
class AwaitedReads {
 public:
  explicit AwaitedReads(ReadBackend& reads) : reads_(reads) {}

  // As ReadOp. `outcome`, which several may share, has the first error once Wait has returned.
  void Submit(uint64_t offset, std::span<std::byte> destination, absl::Status& outcome);
  void Wait();

 private:
  ReadBackend& reads_;
  absl::Mutex mutex_;
  size_t unanswered_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace moed
