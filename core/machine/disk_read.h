// How fast a file is read in blocks at random, as experts are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/buffer.h"
#include "core/base/clock.h"
#include "core/io/read_backend.h"

namespace moed {

// Blocks of a file, the first at `offset`; all multiples of 4096.
struct FileBlocks {
  uint64_t offset = 0;
  uint64_t count = 0;
  size_t bytes = 0;  // of one
};

// Reads the blocks with these numbers, `depth` in flight. `memory` holds `depth` blocks. The first error, once no read is in
// flight.
absl::Status ReadBlocks(ReadBackend& reads, const FileBlocks& blocks, std::span<const uint64_t> numbers, int depth,
                        const Buffer& memory);

struct DiskReadLimits {
  double seconds = 1;           // a turn that has begun is ended
  uint64_t bytes = 1ull << 30;  // likewise
  int depth = 8;                // reads at once
};

// Medians of turns, in each of which blocks at random are read: one alone, then `depth` at once.
struct DiskRead {
  double one_seconds = 0;
  double burst_seconds = 0;
  int depth = 0;
  size_t block_bytes = 0;
  int turns = 0;

  double BytesPerSecond() const { return static_cast<double>(block_bytes) * depth / burst_seconds; }
  double OneBytesPerSecond() const { return static_cast<double>(block_bytes) / one_seconds; }
  // A straight line through both: seconds until `reads` that begin together have ended, 0 for none.
  double Seconds(double reads) const;
};

// `before_each`: what runs before every read that is timed. INVALID_ARGUMENT: no block. RESOURCE_EXHAUSTED: no memory for `depth`
// of them. Errors of reads.
absl::StatusOr<DiskRead> MeasureDiskRead(
    ReadBackend& reads, const FileBlocks& blocks, const DiskReadLimits& limits, const Clock& clock,
    absl::FunctionRef<void()> before_each = [] {});

}  // namespace moed
