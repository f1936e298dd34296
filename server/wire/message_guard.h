// Messages on their way to all gRPC servers of the process. gRPC 1.51 takes whole messages in, however long, and feels its memory
// quota late: clients that send fast get three times as much into the process, and whose calls it then cancels is chance.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <vector>

#include "core/base/address.h"
#include "server/wire/taken_messages.h"

namespace moed {

// What a connection has sent lately that no handler was given.
struct Sender {
  int descriptor = -1;
  uint64_t bytes = 0;
};

// Those who have sent most, first, so that the others together have sent at most `most`.
std::vector<Sender> LargestSenders(std::vector<Sender> senders, uint64_t most);

// Ends the connections over TCP that have sent most within the last two seconds, where the process has grown by more than it may
// meanwhile, and a 32nd of that, 256 KiB at least, was sent that no handler has been given: messages that are not whole, headers,
// pings. A quarter of what it may stays. Clients of unix sockets are not told apart. Not synchronised.
class MessageGuard {
 public:
  // `listening`: where all gRPC servers of the process do; outlives it. `most_grown`: bytes.
  MessageGuard(const std::vector<Address>& listening, int64_t most_grown);

  // Asked every few milliseconds, and each where it said true: the process is growing. `resident_bytes`: of the process.
  bool Look(int64_t resident_bytes);

 private:
  using Clock = std::chrono::steady_clock;

  struct Snapshot {
    Clock::time_point at;
    int64_t resident_bytes = 0;
    uint64_t ended_bytes = 0;
    std::map<uint64_t, uint64_t> received;  // bytes, by the socket's cookie
    BytesByPort taken;                      // between the snapshot before and this one
  };

  Snapshot Take(int64_t resident_bytes) const;
  BytesByPort TakenSinceOlder() const;
  void EndLargest(int64_t grown, Clock::time_point now);
  std::vector<Sender> SendersSinceOlder() const;

  const std::vector<Address>& listening_;
  const int64_t most_grown_;
  Snapshot older_, newer_;  // a second or more apart
  Clock::time_point acted_at_;
  uint64_t ended_bytes_ = 0;  // of connections that were ended: what they sent may be held still
};

}  // namespace moed
