// Calls that are open, of all gRPC servers of the process. gRPC 1.51 holds 12 KB for a call from its first header on, whether or
// not a message ever comes, beside its memory quota; and the number of streams that a server announces binds only clients that
// have acknowledged it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "core/base/address.h"
#include "server/wire/inlet.h"

namespace moed {

// An open connection as gRPC's channelz knows it.
struct ConnectionCalls {
  int64_t id = 0;
  std::string peer;    // "ipv4:127.0.0.1:4711", "unix:"
  int64_t open = 0;    // calls
  int64_t failed = 0;  // calls that ended without an answer, or with a refusal
};

// The connections that have to be closed so that at most `most` calls stay open, and of none more than `most_of_one` are open or
// have failed: those with the most, first.
std::vector<ConnectionCalls> Greediest(std::vector<ConnectionCalls> connections, int most, int most_of_one);

// Calls that may be open beside those that run and wait, of a daemon: 6 MiB beside its budget and gRPC's buffers.
inline constexpr int kOtherCalls = 512;

// Bounds the calls that are open, within what comes between two looks. It looks when the process has grown by 1 MiB, before
// more is read, and each second. Where more than three quarters of `most_calls` are open it looks 1,000 times a second, and ends
// the greediest connections, until half are left and none has had more than its share open or failed; and those with more to
// read, as it does where as many begin within 10 ms. Who keeps to what is announced and has sent its messages is not among them.
class CallGuard {
 public:
  // `listening`: where all gRPC servers of the process do. `most_of_one`: connection. `message_bytes`: of a MessageGuard, which
  // its thread asks, too.
  CallGuard(std::vector<Address> listening, int most_calls, int most_of_one, int64_t message_bytes);
  ~CallGuard();

 private:
  struct Known {
    int64_t failed = 0;  // when all was well
    bool ended = false;
  };

  void Loop();
  bool Look();  // whether all is well
  std::vector<ConnectionCalls> LiveOf(const std::vector<ConnectionCalls>& connections);

  const std::vector<Address> listening_;
  const int most_calls_;
  const int most_of_one_;
  const int64_t message_bytes_;
  const int64_t many_ = most_calls_ / 4 * 3;
  int64_t begun_ = 0;               // calls, at the last look
  int64_t ended_ = 0;               // calls, at the last look
  bool flood_ = false;              // at the last look
  std::map<int64_t, Known> known_;  // connections, by id
  std::chrono::steady_clock::time_point looked_at_ = std::chrono::steady_clock::now();
  InletWatch watch_;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace moed
