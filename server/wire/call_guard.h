// Calls that are open, of all gRPC servers of the process. gRPC 1.51 holds 12 KB for a call from its first header on, whether or
// not a message ever comes, beside its memory quota; and the number of streams that a server announces binds only clients that
// have acknowledged it.
#pragma once

#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"

namespace moed {

// An open connection as gRPC's channelz knows it.
struct OpenCalls {
  std::string peer;  // "ipv4:127.0.0.1:4711", "unix:"
  int calls = 0;
};

// The connections that have to be closed so that at most `most` calls stay open: those with the most, first. None where no more
// than that are open.
std::vector<OpenCalls> Greediest(std::vector<OpenCalls> connections, int most);

// Looks 100 times a second, on a thread of its own. Where more than `most_calls` are open the greediest connections are shut
// down, until three quarters of that are left: who keeps to what is announced and sends its messages is not among them.
class CallGuard {
 public:
  explicit CallGuard(int most_calls);
  ~CallGuard();

 private:
  void Loop();

  const int most_calls_;
  absl::Notification ending_;
  std::thread thread_;
};

}  // namespace moed
