// Turns whose routing is recorded: what is played, and what could have been reached with it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/systems/journal.h"
#include "bench/systems/setup.h"
#include "client/client.h"

namespace moed {

// A request of a turn.
struct Played {
  int sequence = 0;    // of the record
  size_t tokens = 0;   // of prompt and answer that were computed
  size_t counted = 0;  // of them, the last ones
};

// `bench.recorded` from a directory (docs/routing-traces.md), and the numbers of its sequences of at least `least_tokens` as
// prompts: one kind for each category, every other category is there to learn from. INVALID_ARGUMENT: fewer than two categories.
absl::Status ReadRecorded(const std::string& directory, size_t least_tokens, SystemsBench& bench);

std::string HashOfTrace(const RoutingTrace& trace);

// Replays, on a simulated disk, `tokens` of the sequences to learn from through a cache of `capacity_bytes`, with auto's policy
// and predictor, and writes what they learned. Returns the tokens replayed, all there are at most.
absl::StatusOr<double> LearnFromRecord(const SystemsBench& bench, const Contender& contender, uint64_t budget,
                                       uint64_t capacity_bytes, size_t tokens, const std::string& path);

// What the disk gives reads of an expert's size from the store, several at once, while nobody else reads.
absl::StatusOr<double> DiskBytesPerSecond(const SystemsBench& bench);

// Adds to the figures of a turn, with a cache of `capacity_bytes`:
//   belady_hit_ratio  of the counted tokens, evicting what is needed last, after the tokens before them
//   bound_share       of the rate that there would be if reading, at disk_bytes_per_second or what the turn itself read at, or
//                     computing, whichever takes longer, were all that took time
absl::Status AddBounds(const SystemsBench& bench, const std::vector<Played>& played, uint64_t capacity_bytes, Figures& figures);

}  // namespace moed
