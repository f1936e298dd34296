#include "core/machine/disk_read.h"

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/base/median.h"
#include "core/base/status.h"

namespace moed {
namespace {

// The slots of a buffer, of which reads in flight hold one each.
class Slots {
 public:
  explicit Slots(int count) : count_(static_cast<size_t>(count)) {
    for (int slot = 0; slot < count; ++slot) free_.push_back(slot);
  }

  int Take() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &Slots::AnyFree));
    const int slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void Return(int slot, absl::Status read) {
    absl::MutexLock lock(&mutex_);
    outcome_.Update(std::move(read));
    free_.push_back(slot);
  }
  absl::Status WaitForAll() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &Slots::AllFree));
    return outcome_;
  }

 private:
  bool AnyFree() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !free_.empty(); }
  bool AllFree() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return free_.size() == count_; }

  const size_t count_;
  absl::Mutex mutex_;
  std::vector<int> free_ ABSL_GUARDED_BY(mutex_);
  absl::Status outcome_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::Status ReadBlocks(ReadBackend& reads, const FileBlocks& blocks, std::span<const uint64_t> numbers, int depth,
                        const Buffer& memory) {
  Slots slots(depth);
  for (const uint64_t number : numbers) {
    const int slot = slots.Take();
    reads.Submit({.offset = blocks.offset + number * blocks.bytes,
                  .destination = memory.span().subspan(static_cast<size_t>(slot) * blocks.bytes, blocks.bytes),
                  .done = [&slots, slot](absl::Status read) { slots.Return(slot, std::move(read)); }});
  }
  return slots.WaitForAll();
}

double DiskRead::Seconds(double reads) const {
  if (reads <= 0) return 0;
  const double each = depth > 1 ? std::max(0.0, (burst_seconds - one_seconds) / (depth - 1)) : one_seconds;
  return one_seconds + (reads - 1) * each;
}

absl::StatusOr<DiskRead> MeasureDiskRead(ReadBackend& reads, const FileBlocks& blocks, const DiskReadLimits& limits,
                                         const Clock& clock, absl::FunctionRef<void()> before_each) {
  if (blocks.count == 0 || blocks.bytes == 0) return InvalidArgument("there is no block to read");
  MOED_ASSIGN_OR_RETURN(const Buffer memory, Buffer::Allocate(blocks.bytes * static_cast<size_t>(limits.depth)));
  std::mt19937_64 random(1);
  std::uniform_int_distribution<uint64_t> any(0, blocks.count - 1);
  const auto timed = [&](int count, std::vector<double>& seconds) -> absl::Status {
    std::vector<uint64_t> numbers(static_cast<size_t>(count));
    for (uint64_t& number : numbers) number = any(random);
    before_each();
    const int64_t start = clock.NowNanos();
    MOED_RETURN_IF_ERROR(ReadBlocks(reads, blocks, numbers, count, memory));
    seconds.push_back(SecondsBetween(start, clock.NowNanos()));
    return absl::OkStatus();
  };
  std::vector<double> one, burst;
  std::vector<double> warm;  // touches the memory
  MOED_RETURN_IF_ERROR(timed(limits.depth, warm));
  const int64_t start = clock.NowNanos();
  uint64_t bytes = 0;
  do {
    MOED_RETURN_IF_ERROR(timed(1, one));
    MOED_RETURN_IF_ERROR(timed(limits.depth, burst));
    bytes += blocks.bytes * static_cast<uint64_t>(limits.depth + 1);
  } while (bytes < limits.bytes && SecondsBetween(start, clock.NowNanos()) < limits.seconds);
  return DiskRead{.one_seconds = Median(one),
                  .burst_seconds = Median(burst),
                  .depth = limits.depth,
                  .block_bytes = blocks.bytes,
                  .turns = static_cast<int>(one.size())};
}

}  // namespace moed
