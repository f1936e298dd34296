#include "server/startup/termination_signals.h"

#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <thread>
#include <utility>

#include "core/base/clock.h"
#include "spdlog/spdlog.h"

namespace moed {
namespace {

sigset_t AwaitedSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  return set;
}

// Who signals a process and its group, as timeout(1) does, means one end.
constexpr double kOneWishSeconds = .02;

[[noreturn]] void EndAtOnce(int signal) {
  spdlog::default_logger()->flush();
  _exit(128 + signal);
}

// The next one that is no SIGHUP.
int WaitForEnd(const std::function<void()>& reload) {
  const sigset_t set = AwaitedSignals();
  while (true) {
    int signal = 0;
    sigwait(&set, &signal);
    if (signal != SIGHUP) return signal;
    reload();
  }
}

}  // namespace

void BlockTerminationSignals() {
  const sigset_t set = AwaitedSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

void WatchTerminationSignals(std::function<bool()> drain, std::function<void()> reload) {
  std::thread([drain = std::move(drain), reload = std::move(reload)] {
    const int first = WaitForEnd(reload);
    const int64_t wished = Clock::Real().NowNanos();
    spdlog::info("signal {}", first);
    if (!drain()) EndAtOnce(first);
    int second = WaitForEnd(reload);
    while (SecondsBetween(wished, Clock::Real().NowNanos()) < kOneWishSeconds) second = WaitForEnd(reload);
    spdlog::warn("signal {} again: ending at once", second);
    EndAtOnce(second);
  }).detach();
}

}  // namespace moed
