#include "server/commands/stop_signals.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "core/base/check.h"

namespace moed {
namespace {

// By whoever started this process: nohup.
bool IsIgnored(int number) {
  struct sigaction action;
  return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

StopSignals::StopSignals() {
  sigset_t taken;
  sigemptyset(&taken);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    if (!IsIgnored(number)) sigaddset(&taken, number);
  }
  sigaddset(&taken, SIGCHLD);
  signal(SIGCHLD, SIG_DFL);  // where it is ignored children leave no exit code
  sigprocmask(SIG_BLOCK, &taken, &before_);
  descriptor_ = signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK);
  MOED_CHECK(descriptor_ >= 0);
}

StopSignals::~StopSignals() {
  close(descriptor_);
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<StopSignal> StopSignals::Wait(int milliseconds, int readable) {
  pollfd polled[] = {{descriptor_, POLLIN, 0}, {readable, POLLIN, 0}};
  poll(polled, 2, milliseconds);
  signalfd_siginfo info;
  if (read(descriptor_, &info, sizeof(info)) != sizeof(info) || info.ssi_signo == SIGCHLD) return std::nullopt;
  const int number = static_cast<int>(info.ssi_signo);
  if (first_ == 0) first_ = number;
  return StopSignal{number, number == SIGINT && info.ssi_code == SI_KERNEL};
}

}  // namespace moed
