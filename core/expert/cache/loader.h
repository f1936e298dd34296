// Records from the store into slots: split into reads, ordered by the read queue, checked by the thread that completes each read.
// Coded ones are read into the end of their place in the slot, and decoded there by threads of the loader's own, so that neither
// the device nor what computes waits for that.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/base/trace.h"
#include "core/expert/cache/decoding_threads.h"
#include "core/expert/cache/read_timer.h"
#include "core/expert/expert_index.h"
#include "core/io/read_queue.h"
#include "core/store/store.h"

namespace moed {

inline constexpr int kMaxReadsPerRecord = 2;

// Where a record goes; stays as it is until every read of it was reported.
struct LoadTarget {
  CachedKey key;
  std::span<std::byte> bytes;  // the record whole
};

// Which reads are compared with the store's checksums. Hashing takes a pass over the bytes on a core that computes, so by default
// it is done when a range comes from the file for the first time in this process; later reads of it are trusted.
enum class ChecksumRule : uint8_t { kFirstRead, kEveryRead };

struct LoaderOptions {
  ReadQueueOptions queue;
  uint64_t split_read_bytes = 0;
  ChecksumRule checksums = ChecksumRule::kFirstRead;
};

// Thread-safe.
class Loader {
 public:
  class Listener {
   public:
    // Once a read: on a thread of the backend, or of the loader's own where records are coded, or inside Cancel or the loader's
    // end with CANCELLED. DATA_LOSS for a wrong checksum, and for what cannot be decoded.
    virtual void OnRead(LoadTarget& target, int read, absl::Status outcome) = 0;

   protected:
    ~Listener() = default;
  };
  // Zero for a read that the record does not need.
  using Tickets = std::array<ReadTicket, kMaxReadsPerRecord>;

  // Everything outlives the loader; `trace` may be null. Destruction ends every read that was started.
  Loader(const StoreReader& store, ReadBackend& backend, const Clock& clock, Trace* trace, const LoaderOptions& options,
         Listener& listener);

  int ReadsOf(const CachedKey& key) const { return store_.expert_bytes(key) < split_read_bytes_ ? 1 : kMaxReadsPerRecord; }
  bool Covers(const CachedKey& key, int read, ExpertPart part) const {
    return ReadsOf(key) == 1 || (part == ExpertPart::kDown) == (read == kMaxReadsPerRecord - 1);
  }

  Tickets Start(LoadTarget& target, ReadPriority priority);
  void Promote(const Tickets& tickets);
  // A record whose first read is in flight whole or finished is left alone.
  void Cancel(const Tickets& tickets);

  ReadQueueStats stats() const { return queue_.stats(); }
  // Time with at least one read under way, from when the device gets it to when its bytes are what the slot is to have.
  int64_t busy_nanos() const { return timer_.busy_nanos(); }
  size_t memory_bytes() const { return verified_.size(); }

 private:
  struct Range {
    uint64_t end_bytes = 0;  // in the record
    size_t first_segment = 0;
    size_t end_segment = 0;
  };

  Range RangeOf(const CachedKey& key, int read) const;  // reads in record order
  std::span<std::byte> DestinationOf(const LoadTarget& target, const Range& range) const;
  // The device has answered; decoded, where that is to be done.
  void Answered(LoadTarget& target, int read, absl::Status outcome);
  void Finish(LoadTarget& target, int read, absl::Status outcome);
  bool Unverified(const LoadTarget& target, int read) const;
  absl::Status Verify(const LoadTarget& target, const Range& range) const;

  const StoreReader& store_;
  const Clock& clock_;
  Trace* const trace_;
  const uint64_t split_read_bytes_;
  const ChecksumRule checksums_;
  const ExpertIndex index_;
  Listener& listener_;
  std::vector<std::atomic<uint8_t>> verified_;  // by index_: bit per read that was right once
  ReadTimer timer_;
  std::optional<DecodingThreads> decoding_;  // of a store with coded records
  ReadQueue queue_;                          // last: its end reports to all of the above
};

}  // namespace moed
