// Which of a trace's sequences the boxes of a fleet would be asked for, by how requests are shared out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/replay/routing_trace_reader.h"

namespace moed {

enum class Balance {
  kAny,    // every box may get every request
  kTopic,  // a topic (TraceSequence::category) has its boxes: several topics a box, or several boxes a topic
};

// In this order. No sequence is there twice: what a box has seen is never what it is measured by.
struct BoxRequests {
  std::vector<TraceSequence> warming;
  std::vector<TraceSequence> measured;
};

// Of box `box` of `boxes`. At most `most` sequences, and with either balance as many as its topics have. The same seed, the same
// requests. INVALID_ARGUMENT: sequences without a category, or topics too small to be divided.
absl::StatusOr<BoxRequests> RequestsOfBox(std::span<const TraceSequence> sequences, size_t box, size_t boxes, size_t most,
                                          Balance balance, uint64_t seed);

}  // namespace moed
