#include "core/io/read_queue.h"

#include <algorithm>
#include <array>
#include <list>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "core/base/check.h"

namespace moed {

class ReadQueue::Impl {
 public:
  Impl(ReadBackend& backend, const Clock& clock, int max_in_flight)
      : backend_(backend),
        clock_(clock),
        limit_(max_in_flight == 0 ? backend.max_in_flight() : std::min(max_in_flight, backend.max_in_flight())) {
    MOED_CHECK(limit_ >= 1);
  }

  ~Impl() {
    for (Read& read : TakeAllQueued()) read.done(Cancelled());
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &Impl::AllAnswered));
  }

  ReadTicket Submit(ReadPriority priority, uint64_t offset, std::span<std::byte> destination,
                    std::function<void(absl::Status)> done) {
    ReadTicket ticket;
    {
      absl::MutexLock lock(&mutex_);
      ticket = next_ticket_++;
      Line& line = LineOf(priority);
      queued_[ticket] = line.insert(line.end(), Read{ticket, priority, offset, destination, std::move(done)});
    }
    GiveToBackend();
    return ticket;
  }

  void Promote(ReadTicket ticket) {
    absl::MutexLock lock(&mutex_);
    const auto found = queued_.find(ticket);
    if (found == queued_.end() || found->second->priority == ReadPriority::kDemand) return;
    Line& demands = LineOf(ReadPriority::kDemand);
    demands.splice(demands.end(), LineOf(ReadPriority::kPrefetch), found->second);
    found->second->priority = ReadPriority::kDemand;
  }

  bool Cancel(ReadTicket ticket) {
    Line cancelled;
    {
      absl::MutexLock lock(&mutex_);
      const auto found = queued_.find(ticket);
      if (found == queued_.end()) return false;
      cancelled.splice(cancelled.end(), LineOf(found->second->priority), found->second);
      queued_.erase(found);
      ++stats_.cancelled;
    }
    cancelled.front().done(Cancelled());
    return true;
  }

  ReadQueueStats stats() const {
    absl::MutexLock lock(&mutex_);
    ReadQueueStats now = stats_;
    if (in_flight_ > 0) now.busy_nanos += clock_.NowNanos() - busy_since_nanos_;
    return now;
  }

 private:
  struct Read {
    ReadTicket ticket;
    ReadPriority priority;
    uint64_t offset;
    std::span<std::byte> destination;
    std::function<void(absl::Status)> done;
  };
  using Line = std::list<Read>;

  static absl::Status Cancelled() { return absl::CancelledError("the read was cancelled before it began"); }

  Line& LineOf(ReadPriority priority) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return lines_[static_cast<size_t>(priority)]; }
  bool AllAnswered() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return unanswered_ == 0; }

  Line TakeAllQueued() {
    absl::MutexLock lock(&mutex_);
    Line all;
    for (Line& line : lines_) all.splice(all.end(), line);
    queued_.clear();
    stats_.cancelled += all.size();
    return all;
  }

  // The next read, now counted as in flight; an empty list when none may start.
  Line TakeNext() {
    absl::MutexLock lock(&mutex_);
    Line next;
    if (in_flight_ == limit_) return next;
    for (Line& line : lines_) {
      if (line.empty()) continue;
      next.splice(next.end(), line, line.begin());
      queued_.erase(next.front().ticket);
      if (in_flight_++ == 0) busy_since_nanos_ = clock_.NowNanos();
      ++unanswered_;
      break;
    }
    return next;
  }

  // Without the lock: a backend may answer at once.
  void GiveToBackend() {
    for (Line next = TakeNext(); !next.empty(); next = TakeNext()) {
      Read& read = next.front();
      backend_.Submit({read.offset, read.destination,
                       [this, bytes = read.destination.size(), done = std::move(read.done)](absl::Status outcome) mutable {
                         Finish(bytes, std::exchange(done, nullptr), std::move(outcome));
                       }});
    }
  }

  // The device gets its next read before the waiter of this one runs.
  void Finish(size_t bytes, std::function<void(absl::Status)> done, absl::Status outcome) {
    CountFinished(bytes, outcome.ok());
    GiveToBackend();
    done(std::move(outcome));
    done = nullptr;
    absl::MutexLock lock(&mutex_);
    --unanswered_;
  }

  void CountFinished(size_t bytes, bool ok) {
    absl::MutexLock lock(&mutex_);
    if (--in_flight_ == 0) stats_.busy_nanos += clock_.NowNanos() - busy_since_nanos_;
    ++stats_.reads;
    if (ok) {
      stats_.bytes += bytes;
    } else {
      ++stats_.failed;
    }
  }

  ReadBackend& backend_;
  const Clock& clock_;
  const int limit_;
  mutable absl::Mutex mutex_;
  std::array<Line, 2> lines_ ABSL_GUARDED_BY(mutex_);  // by ReadPriority, each first come first served
  absl::flat_hash_map<ReadTicket, Line::iterator> queued_ ABSL_GUARDED_BY(mutex_);  // exactly the reads in lines_
  ReadTicket next_ticket_ ABSL_GUARDED_BY(mutex_) = 1;
  int in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  int unanswered_ ABSL_GUARDED_BY(mutex_) = 0;            // given to the backend, and done has not returned
  int64_t busy_since_nanos_ ABSL_GUARDED_BY(mutex_) = 0;  // meaningful while in_flight_ > 0
  ReadQueueStats stats_ ABSL_GUARDED_BY(mutex_);
};

ReadQueue::ReadQueue(ReadBackend& backend, const Clock& clock, int max_in_flight)
    : impl_(std::make_unique<Impl>(backend, clock, max_in_flight)) {}
ReadQueue::~ReadQueue() = default;

ReadTicket ReadQueue::Submit(ReadPriority priority, uint64_t offset, std::span<std::byte> destination,
                             std::function<void(absl::Status)> done) {
  return impl_->Submit(priority, offset, destination, std::move(done));
}
void ReadQueue::Promote(ReadTicket ticket) { impl_->Promote(ticket); }
bool ReadQueue::Cancel(ReadTicket ticket) { return impl_->Cancel(ticket); }
ReadQueueStats ReadQueue::stats() const { return impl_->stats(); }

}  // namespace moed
