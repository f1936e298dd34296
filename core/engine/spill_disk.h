// Pieces of memory on their way to blocks of a file and back, on a thread of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "core/base/buffer.h"
#include "core/base/clock.h"
#include "core/base/timed_wait.h"
#include "core/io/nameless_file.h"

namespace moed {

// At most a block's bytes, which are all of the block that is of use.
struct SpillPiece {
  std::byte* memory = nullptr;
  uint32_t bytes = 0;
  uint32_t block = 0;
  uint64_t checksum = 0;  // set when it is written, and held against what is read
};

enum class SpillWay : uint8_t { kWrite, kRead };

// Pieces that go the same way, in order. The memory of those that are written may be read by others meanwhile, and is not written
// to; the memory of those that are read is the disk's alone.
struct SpillJob {
  uint64_t ticket = 0;
  SpillWay way = SpillWay::kWrite;
  std::vector<SpillPiece> pieces;
  size_t done = 0;      // of them
  int64_t nanos = 0;    // that the file took for those
  absl::Status status;  // of the first piece that failed, behind which none is moved. DATA_LOSS: it is not what was written
};

// One call at a time, whichever thread makes it, SetWaker aside. Pieces that are read go before those that are written, and one
// block is under way at a time.
class SpillDisk {
 public:
  // Holds one block of `block_bytes`, a multiple of 4096, in memory. RESOURCE_EXHAUSTED.
  static absl::StatusOr<std::unique_ptr<SpillDisk>> Create(std::shared_ptr<NamelessFile> file, size_t block_bytes,
                                                           const Clock& clock);
  ~SpillDisk();  // what is queued is dropped

  uint64_t Submit(SpillWay way, std::vector<SpillPiece> pieces);
  // From here on nothing touches the memory of its pieces; waits for one copy of a piece at most. The job as far as it came. Of
  // one that TakeDone has told, or that is not known, an empty one.
  SpillJob Cancel(uint64_t ticket);
  std::vector<SpillJob> TakeDone();
  void AwaitDone(absl::Duration timeout);  // until TakeDone tells of something
  // Called whenever it does, on the disk's thread; not any more once another one (or none) was set. Must not call the disk.
  void SetWaker(std::function<void()> waker);

 private:
  SpillDisk(std::shared_ptr<NamelessFile> file, Buffer block, const Clock& clock);
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ending_ || !reads_.empty() || !writes_.empty(); }
  bool HasDone() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !done_.empty(); }
  bool NotCopying() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !copying_; }
  void Run();
  void MoveOne() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Move(SpillWay way, SpillPiece& piece, int64_t& nanos) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Copy(std::byte* to, const std::byte* from, size_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  SpillJob* Find(SpillWay way, uint64_t ticket) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::deque<SpillJob>& Queue(SpillWay way) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return way == SpillWay::kRead ? reads_ : writes_;
  }

  const std::shared_ptr<NamelessFile> file_;
  const Buffer block_;  // the disk's thread alone
  const Clock& clock_;

  absl::Mutex mutex_;
  std::deque<SpillJob> reads_ ABSL_GUARDED_BY(mutex_);
  std::deque<SpillJob> writes_ ABSL_GUARDED_BY(mutex_);
  std::vector<SpillJob> done_ ABSL_GUARDED_BY(mutex_);
  TimedWait done_soon_;
  uint64_t last_ticket_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t moving_ ABSL_GUARDED_BY(mutex_) = 0;   // the ticket whose piece is under way; 0: none, or it was cancelled
  bool copying_ ABSL_GUARDED_BY(mutex_) = false;  // the memory of a piece is touched now
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;

  absl::Mutex waker_mutex_;
  std::function<void()> waker_ ABSL_GUARDED_BY(waker_mutex_);
  std::thread thread_;
};

}  // namespace moed
