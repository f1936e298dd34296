// What asks this process to end, while it waits for others.
#pragma once

#include <signal.h>

#include <optional>

namespace moed {

struct StopSignal {
  int number;             // SIGINT, SIGTERM, SIGHUP
  bool reached_children;  // those in this group: it is a terminal's Ctrl-C
};

// Blocks these signals, but for those that are ignored, and SIGCHLD in this thread, which must be the only one, and takes them in
// Wait alone. What was blocked before is so again in the end.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  const sigset_t& before() const { return before_; }

  // Returns at a signal, when a child has ended, when `readable` is, after `milliseconds`; sometimes for nothing. -1: no such
  // end.
  std::optional<StopSignal> Wait(int milliseconds = -1, int readable = -1);
  // The first that came; 0: none.
  int first() const { return first_; }

 private:
  sigset_t before_;
  int descriptor_;
  int first_ = 0;
};

}  // namespace moed
