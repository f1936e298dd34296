// The order of reads: demand before prefetch, first come first served among equals, queued reads cancelled or promoted.
// A read in flight is never interrupted. Every Submit is one read: whoever has two waiters for one range lets them share a
// ticket.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "core/io/read_backend.h"

namespace moed {

enum class ReadPriority : uint8_t { kDemand = 0, kPrefetch = 1 };

// Names one queued read; never reused.
using ReadTicket = uint64_t;

struct ReadQueueStats {
  uint64_t reads = 0;  // finished, failed ones included
  uint64_t bytes = 0;  // read successfully
  uint64_t failed = 0;
  uint64_t cancelled = 0;
  int64_t busy_nanos = 0;  // time with at least one read in flight
};

// Thread-safe. Destruction cancels what is queued (done is called with CANCELLED) and waits for what is in flight.
class ReadQueue {
 public:
  // At most `max_in_flight` reads are given to the backend at once (0: the backend's own limit), so that a demand waits behind
  // few prefetches.
  ReadQueue(ReadBackend& backend, const Clock& clock, int max_in_flight = 0);
  ~ReadQueue();

  // `done` runs once, on a backend thread or inside Cancel or the destructor, without the queue's lock held.
  ReadTicket Submit(ReadPriority priority, uint64_t offset, std::span<std::byte> destination,
                    std::function<void(absl::Status)> done);
  // Moves a queued prefetch among the demands; nothing for one in flight or finished.
  void Promote(ReadTicket ticket);
  // True when it was still queued: then done(CANCELLED) has run. False when it is in flight or finished.
  bool Cancel(ReadTicket ticket);

  ReadQueueStats stats() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moed
