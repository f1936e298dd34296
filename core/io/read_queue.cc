#include "core/io/read_queue.h"

#include <algorithm>
#include <array>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "core/base/check.h"

namespace moed {

class ReadQueue::Impl {
 public:
  Impl(ReadBackend& backend, const Clock& clock, const ReadQueueOptions& options)
      : backend_(backend),
        clock_(clock),
        limit_(options.max_in_flight == 0 ? backend.max_in_flight() : std::min(options.max_in_flight, backend.max_in_flight())),
        idle_piece_bytes_(options.idle_piece_bytes) {
    MOED_CHECK(limit_ >= 1 && idle_piece_bytes_ > 0);
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
    {
      absl::MutexLock lock(&mutex_);
      const auto found = queued_.find(ticket);
      if (found == queued_.end() || found->second->priority == ReadPriority::kDemand) return;
      Line& demands = LineOf(ReadPriority::kDemand);
      demands.splice(demands.end(), LineOf(found->second->priority), found->second);
      found->second->priority = ReadPriority::kDemand;
    }
    GiveToBackend();
  }

  bool Cancel(ReadTicket ticket) {
    Line over;
    {
      absl::MutexLock lock(&mutex_);
      const auto found = queued_.find(ticket);
      if (found == queued_.end()) return false;
      StopGiving(found->second, over);
    }
    for (Read& read : over) read.done(Cancelled());
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
    uint64_t offset;                   // of what is left to give
    std::span<std::byte> destination;  // likewise
    std::function<void(absl::Status)> done;
    bool begun = false;
    int in_flight = 0;     // pieces
    uint64_t bytes = 0;    // that have come
    absl::Status outcome;  // of the pieces that have come, CANCELLED once nothing more is to be given
  };
  using Line = std::list<Read>;
  struct Piece {
    Line::iterator of;
    ReadOp op;
    bool idle = false;
  };

  static absl::Status Cancelled() { return absl::CancelledError("the read was cancelled before it was done"); }

  Line& LineOf(ReadPriority priority) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return lines_[static_cast<size_t>(priority)]; }
  bool AllAnswered() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return unanswered_ == 0; }

  Line TakeAllQueued() {
    absl::MutexLock lock(&mutex_);
    Line over;
    for (Line& line : lines_) {
      while (!line.empty()) StopGiving(line.begin(), over);
    }
    return over;
  }

  // Of a queued read: no more of it is given. It is over, or waits for its pieces in flight.
  void StopGiving(Line::iterator read, Line& over) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ++stats_.cancelled;
    read->outcome = Cancelled();
    queued_.erase(read->ticket);
    if (read->in_flight == 0) stats_.cancelled_bytes += read->bytes;
    Line& to = read->in_flight > 0 ? given_ : over;
    to.splice(to.end(), LineOf(read->priority), read);
  }

  bool MayBegin(const Read& read) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return read.priority != ReadPriority::kIdle || (in_flight_ == idle_in_flight_ && idle_in_flight_ < kIdlePiecesInFlight);
  }

  // The next piece, now counted as in flight; none when none may start.
  std::optional<Piece> TakeNext() {
    absl::MutexLock lock(&mutex_);
    if (in_flight_ == limit_) return std::nullopt;
    const auto line = std::ranges::find_if_not(lines_, &Line::empty);
    if (line == lines_.end() || !MayBegin(line->front())) return std::nullopt;
    const auto read = line->begin();
    Piece piece{.of = read, .idle = read->priority == ReadPriority::kIdle};
    const size_t bytes = piece.idle ? std::min(idle_piece_bytes_, read->destination.size()) : read->destination.size();
    piece.op = {.offset = read->offset, .destination = read->destination.first(bytes), .goes_on = read->begun};
    read->offset += bytes;
    read->destination = read->destination.subspan(bytes);
    read->begun = true;
    ++read->in_flight;
    if (read->destination.empty()) {
      queued_.erase(read->ticket);
      given_.splice(given_.end(), *line, read);
    }
    if (in_flight_++ == 0) busy_since_nanos_ = clock_.NowNanos();
    idle_in_flight_ += piece.idle ? 1 : 0;
    ++unanswered_;
    return piece;
  }

  // Without the lock: a backend may answer at once.
  void GiveToBackend() {
    while (std::optional<Piece> piece = TakeNext()) {
      piece->op.done = [this, read = piece->of, bytes = piece->op.destination.size(), idle = piece->idle](absl::Status outcome) {
        Finish(read, bytes, idle, std::move(outcome));
      };
      backend_.Submit(std::move(piece->op));
    }
  }

  // The device gets its next read before the waiter of this one runs.
  void Finish(Line::iterator read, size_t bytes, bool idle, absl::Status outcome) {
    Line over = CountFinished(read, bytes, idle, std::move(outcome));
    GiveToBackend();
    for (Read& last : over) last.done(std::move(last.outcome));
    over.clear();
    absl::MutexLock lock(&mutex_);
    --unanswered_;
  }

  // The read, if this was its last piece. After an error no more of it is given.
  Line CountFinished(Line::iterator read, size_t bytes, bool idle, absl::Status outcome) {
    absl::MutexLock lock(&mutex_);
    if (--in_flight_ == 0) stats_.busy_nanos += clock_.NowNanos() - busy_since_nanos_;
    idle_in_flight_ -= idle ? 1 : 0;
    --read->in_flight;
    if (outcome.ok()) {
      stats_.bytes += bytes;
      read->bytes += bytes;
    }
    read->outcome.Update(std::move(outcome));
    const auto queued = queued_.find(read->ticket);
    if (queued != queued_.end()) {
      if (read->outcome.ok()) return {};
      queued_.erase(queued);
      given_.splice(given_.end(), LineOf(read->priority), read);
    }
    if (read->in_flight > 0) return {};
    if (absl::IsCancelled(read->outcome)) {
      stats_.cancelled_bytes += read->bytes;
    } else {
      ++stats_.reads;
      stats_.failed += read->outcome.ok() ? 0 : 1;
    }
    Line over;
    over.splice(over.end(), given_, read);
    return over;
  }

  ReadBackend& backend_;
  const Clock& clock_;
  const int limit_;
  const size_t idle_piece_bytes_;
  mutable absl::Mutex mutex_;
  std::array<Line, 3> lines_ ABSL_GUARDED_BY(mutex_);  // by ReadPriority, each first come first served; all have bytes to give
  Line given_ ABSL_GUARDED_BY(mutex_);                 // nothing more of them is to be given; all have pieces in flight
  absl::flat_hash_map<ReadTicket, Line::iterator> queued_ ABSL_GUARDED_BY(mutex_);  // exactly the reads in lines_
  ReadTicket next_ticket_ ABSL_GUARDED_BY(mutex_) = 1;
  int in_flight_ ABSL_GUARDED_BY(mutex_) = 0;             // pieces
  int idle_in_flight_ ABSL_GUARDED_BY(mutex_) = 0;        // of them
  int unanswered_ ABSL_GUARDED_BY(mutex_) = 0;            // pieces given to the backend whose Finish has not returned
  int64_t busy_since_nanos_ ABSL_GUARDED_BY(mutex_) = 0;  // meaningful while in_flight_ > 0
  ReadQueueStats stats_ ABSL_GUARDED_BY(mutex_);
};

ReadQueue::ReadQueue(ReadBackend& backend, const Clock& clock, const ReadQueueOptions& options)
    : impl_(std::make_unique<Impl>(backend, clock, options)) {}
ReadQueue::~ReadQueue() = default;

ReadTicket ReadQueue::Submit(ReadPriority priority, uint64_t offset, std::span<std::byte> destination,
                             std::function<void(absl::Status)> done) {
  return impl_->Submit(priority, offset, destination, std::move(done));
}
void ReadQueue::Promote(ReadTicket ticket) { impl_->Promote(ticket); }
bool ReadQueue::Cancel(ReadTicket ticket) { return impl_->Cancel(ticket); }
ReadQueueStats ReadQueue::stats() const { return impl_->stats(); }

}  // namespace moed
