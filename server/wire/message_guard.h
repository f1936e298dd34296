// Messages on their way to all gRPC servers of the process. gRPC 1.51 takes whole messages in, however long, and feels its memory
// quota late: clients that send fast get three times as much into the process, and whose calls it then cancels is chance.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "core/base/address.h"
#include "server/wire/inlet.h"

namespace moed {

// What a connection has sent lately that no handler was given, and what of it waits to be read, too: who sends faster than can be
// read is the one who makes the process grow.
struct Sender {
  int descriptor = -1;
  uint64_t bytes = 0;
  uint64_t read = 0;  // of them, by the process
};

// Those who have sent most, first, so that the others together have sent at most `most`.
std::vector<Sender> LargestSenders(std::vector<Sender> senders, uint64_t most);

// Ends the connections that have sent most within the last two seconds, where the process has grown by more than it may
// meanwhile, and a 32nd of that, 128 KiB at least, was sent that no handler has been given: messages that are not whole, headers.
// By a third of what it may, where that is eight times what was read: messages do not take so much, headers do. For two
// seconds after it has ended any, what was read counts as much as headers take. By twice what it may, whatever was sent counts,
// whole messages too. A quarter of what it may stays, of headers a sixteenth. Clients of unix sockets have names for nobody: what
// all of them have sent is held against each, up to what it has sent. Not synchronised.
class MessageGuard {
 public:
  // `listening`: where all gRPC servers of the process do; outlives it. `most_grown`: bytes.
  MessageGuard(const std::vector<Address>& listening, int64_t most_grown);

  enum class State {
    kCalm,
    kGrowing,  // to be asked again within a millisecond
    kTooMuch,  // likewise; and until it is over nothing more should be read
  };
  // Asked every few milliseconds. `memory`: of the process.
  State Look(const ProcessBytes& memory);

 private:
  using Clock = std::chrono::steady_clock;

  struct Snapshot {
    Clock::time_point at;
    ProcessBytes memory;  // without buffers
    uint64_t ended_bytes = 0;
    uint64_t taken = 0;
  };

  Snapshot Take(const ProcessBytes& memory);
  int64_t Grown(const ProcessBytes& memory) const;
  void EndLargest(int64_t grown, bool alert, Clock::time_point now);
  std::vector<Sender> SendersSinceOlder(bool taken_too) const;

  const std::vector<Address>& listening_;
  const int64_t most_grown_;
  Snapshot older_, newer_;  // a second or more apart
  Clock::time_point acted_at_;
  Clock::time_point alarmed_at_;  // by growth: what was ended on suspicion raises none
  uint64_t ended_bytes_ = 0;      // of connections that were ended: what they sent may be held still
  uint64_t ended_read_ = 0;       // read of those who were ended lately, which may still be held
};

}  // namespace moed
