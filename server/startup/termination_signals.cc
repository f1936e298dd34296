#include "server/startup/termination_signals.h"

#include <unistd.h>

#include <csignal>
#include <thread>
#include <utility>

#include "spdlog/spdlog.h"

namespace moed {
namespace {

// A terminal that is closed ends the daemon as SIGTERM does, unless it was started to stay (nohup).
bool IgnoresHangup() {
  struct sigaction action {};
  return sigaction(SIGHUP, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

sigset_t TerminationSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  if (!IgnoresHangup()) sigaddset(&set, SIGHUP);
  return set;
}

[[noreturn]] void EndAtOnce(int signal) {
  spdlog::default_logger()->flush();
  _exit(128 + signal);
}

int WaitForSignal() {
  const sigset_t set = TerminationSignals();
  int signal = 0;
  sigwait(&set, &signal);
  return signal;
}

}  // namespace

void BlockTerminationSignals() {
  const sigset_t set = TerminationSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

void WatchTerminationSignals(std::function<bool()> drain) {
  std::thread([drain = std::move(drain)] {
    const int first = WaitForSignal();
    spdlog::info("signal {}", first);
    if (!drain()) EndAtOnce(first);
    const int second = WaitForSignal();
    spdlog::warn("signal {} again: ending at once", second);
    EndAtOnce(second);
  }).detach();
}

}  // namespace moed
