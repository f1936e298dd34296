// The order of reads: demand before prefetch before idle ones, first come first served among equals, queued reads cancelled or
// promoted. What the backend was given is never interrupted: it has demands and prefetches whole, idle ones piece by piece. Every
// Submit is one read: whoever has two waiters for one range lets them share a ticket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "core/io/read_backend.h"

namespace moed {

enum class ReadPriority : uint8_t {
  kDemand = 0,
  kPrefetch = 1,
  kIdle = 2,  // a piece is begun only while no other read is queued or in flight
};
// Of all idle reads: so that the device waits for nobody, and a demand behind little.
inline constexpr int kIdlePiecesInFlight = 2;

struct ReadQueueOptions {
  int max_in_flight = 0;  // reads given to the backend at once, so that a demand waits behind few; 0: its own limit
  size_t idle_piece_bytes = size_t{1} << 20;  // a multiple of 4096
};

// Names one queued read; never reused.
using ReadTicket = uint64_t;

struct ReadQueueStats {
  uint64_t reads = 0;  // finished, failed ones included
  uint64_t bytes = 0;  // read successfully, of cancelled ones too
  uint64_t failed = 0;
  uint64_t cancelled = 0;
  uint64_t cancelled_bytes = 0;  // of bytes: read of those that were cancelled
  int64_t busy_nanos = 0;        // time with at least one read in flight
};

// Thread-safe. Destruction cancels what is queued (done is called with CANCELLED) and waits for what is in flight.
class ReadQueue {
 public:
  ReadQueue(ReadBackend& backend, const Clock& clock, const ReadQueueOptions& options = {});
  ~ReadQueue();

  // `done` runs once, on a backend thread or inside Cancel or the destructor, without the queue's lock held.
  ReadTicket Submit(ReadPriority priority, uint64_t offset, std::span<std::byte> destination,
                    std::function<void(absl::Status)> done);
  // Moves a queued one among the demands, an idle one with what is left of it; nothing for one that is given whole or finished.
  void Promote(ReadTicket ticket);
  // True when some of it was not given to the backend: then it ends with done(CANCELLED), at once, or where pieces are in flight
  // when the last of these has come. False when it is in flight whole or finished.
  bool Cancel(ReadTicket ticket);

  ReadQueueStats stats() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace moed
