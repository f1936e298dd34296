#include "core/engine/spill_disk.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/store/checksum.h"

namespace moed {

absl::StatusOr<std::unique_ptr<SpillDisk>> SpillDisk::Create(std::shared_ptr<NamelessFile> file, size_t block_bytes,
                                                             const Clock& clock) {
  MOED_CHECK(block_bytes > 0 && block_bytes % kPageBytes == 0);
  MOED_ASSIGN_OR_RETURN(Buffer block, Buffer::Allocate(block_bytes));
  return std::unique_ptr<SpillDisk>(new SpillDisk(std::move(file), std::move(block), clock));
}

SpillDisk::SpillDisk(std::shared_ptr<NamelessFile> file, Buffer block, const Clock& clock)
    : file_(std::move(file)), block_(std::move(block)), clock_(clock), thread_([this] { Run(); }) {}

SpillDisk::~SpillDisk() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  thread_.join();
}

uint64_t SpillDisk::Submit(SpillWay way, std::vector<SpillPiece> pieces) {
  MOED_CHECK(!pieces.empty());
  absl::MutexLock lock(&mutex_);
  Queue(way).push_back({.ticket = ++last_ticket_, .way = way, .pieces = std::move(pieces), .status = {}});
  return last_ticket_;
}

SpillJob* SpillDisk::Find(SpillWay way, uint64_t ticket) {
  std::deque<SpillJob>& queue = Queue(way);
  const auto found = std::find_if(queue.begin(), queue.end(), [&](const SpillJob& job) { return job.ticket == ticket; });
  return found == queue.end() ? nullptr : &*found;
}

SpillJob SpillDisk::Cancel(uint64_t ticket) {
  absl::MutexLock lock(&mutex_);
  if (moving_ == ticket) mutex_.Await(absl::Condition(this, &SpillDisk::NotCopying));
  if (moving_ == ticket) moving_ = 0;
  const auto take = [&](auto& jobs) {
    SpillJob taken;
    const auto found = std::find_if(jobs.begin(), jobs.end(), [&](const SpillJob& job) { return job.ticket == ticket; });
    if (found == jobs.end()) return taken;
    taken = std::move(*found);
    jobs.erase(found);
    return taken;
  };
  SpillJob job = take(reads_);
  if (job.ticket == 0) job = take(writes_);
  if (job.ticket == 0) job = take(done_);
  return job;
}

std::vector<SpillJob> SpillDisk::TakeDone() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(done_, {});
}

void SpillDisk::AwaitDone(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  done_soon_.For(mutex_, timeout, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return HasDone(); });
}

void SpillDisk::SetWaker(std::function<void()> waker) {
  absl::MutexLock lock(&waker_mutex_);
  waker_ = std::move(waker);
}

void SpillDisk::Run() {
  while (true) {
    bool done = false;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &SpillDisk::HasWork));
      if (ending_) return;
      const size_t before = done_.size();
      MoveOne();
      done = done_.size() > before;
    }
    if (!done) continue;
    absl::MutexLock lock(&waker_mutex_);
    if (waker_) waker_();
  }
}

// The next piece of the oldest job. While the file is read or written the job may be cancelled.
void SpillDisk::MoveOne() {
  const SpillWay way = reads_.empty() ? SpillWay::kWrite : SpillWay::kRead;
  const SpillJob& next = Queue(way).front();
  const uint64_t ticket = moving_ = next.ticket;
  SpillPiece piece = next.pieces[next.done];
  int64_t nanos = 0;
  absl::Status status = Move(way, piece, nanos);
  if (std::exchange(moving_, 0) != ticket) return;
  SpillJob& job = *Find(way, ticket);
  job.nanos += nanos;
  job.status = std::move(status);
  if (job.status.ok()) job.pieces[job.done++] = piece;
  if (job.status.ok() && job.done < job.pieces.size()) return;
  done_.push_back(std::move(job));
  done_soon_.Notify();
  Queue(way).pop_front();
}

absl::Status SpillDisk::Move(SpillWay way, SpillPiece& piece, int64_t& nanos) {
  const uint64_t offset = uint64_t{piece.block} * block_.size();
  const auto bytes = block_.span().first(RoundUp(piece.bytes, kPageBytes)), filled = block_.span().first(piece.bytes);
  const uint64_t ticket = moving_;
  if (way == SpillWay::kWrite) Copy(block_.data(), piece.memory, piece.bytes);
  mutex_.Unlock();
  const int64_t begun = clock_.NowNanos();
  if (way == SpillWay::kWrite) piece.checksum = Checksum(filled);
  absl::Status status = way == SpillWay::kWrite ? file_->WriteAt(offset, bytes) : file_->ReadAt(offset, bytes);
  if (status.ok() && way == SpillWay::kRead && Checksum(filled) != piece.checksum) {
    status = DataLoss(file_->path(), ": the block at offset ", offset, " is not what was written (checksum)");
  }
  nanos = clock_.NowNanos() - begun;
  mutex_.Lock();
  if (status.ok() && way == SpillWay::kRead && moving_ == ticket) Copy(piece.memory, block_.data(), piece.bytes);
  return status;
}

void SpillDisk::Copy(std::byte* to, const std::byte* from, size_t bytes) {
  copying_ = true;
  mutex_.Unlock();
  std::memcpy(to, from, bytes);
  mutex_.Lock();
  copying_ = false;
}

}  // namespace moed
