// Where bytes from the network come in: gRPC may not read on where the process has grown and no guard has looked since. A guard
// is a thread among others, and on a busy machine it runs when those that read have already filled memory; so they wait for it.
//
// gRPC 1.51 has no hook for what it reads. It reads by recvmsg(2), so this program has a recvmsg of its own before that of the C
// library.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/time/time.h"

namespace moed {

struct ProcessBytes {
  int64_t resident = 0;  // as the kernel counts them, without those of files; 0: it cannot be known
  int64_t touched = 0;   // pages that threads which receive have used for the first time, since the process began
};
// Takes a microsecond.
ProcessBytes MemoryOfProcess();
// By what such threads did. What others do within the budget, which is mapped when a model is loaded and used little by little,
// is no growth.
constexpr int64_t GrownSince(const ProcessBytes& before, const ProcessBytes& now) {
  return std::min(now.resident - before.resident, now.touched - before.touched);
}
constexpr ProcessBytes LeastOf(const ProcessBytes& a, const ProcessBytes& b) {
  return {std::min(a.resident, b.resident), std::min(a.touched, b.touched)};
}

// That have come in by recvmsg since the process began.
uint64_t BytesReceived();

// Whether connections may be taken as they come. Where not, the last look found more than there should be.
bool InletIsCalm();

inline constexpr uint64_t kAnyNumber = ~uint64_t{0};
struct InletAllowance {
  ProcessBytes since;     // by how much the process may have
  int64_t grown = 0;      // since then
  uint64_t received = 0;  // of BytesReceived()
  bool calm = true;       // InletIsCalm()
};

// While there is one, whoever has received something waits where the last look does not allow more, until the next one; a second
// at most. Thread-safe.
class InletWatch {
 public:
  InletWatch();
  ~InletWatch();
  InletWatch(const InletWatch&) = delete;
  InletWatch& operator=(const InletWatch&) = delete;

  // Until Wake(), or so long, or somebody has begun to wait where it is `for_readers`.
  void Wait(absl::Duration at_most, bool for_readers);
  void Wake();
  void Looked(const InletAllowance& until_next);

 private:
  bool woken_ = false;
};

}  // namespace moed
