#include "client/interrupts.h"

#include <unistd.h>

#include <thread>
#include <utility>

#include "client/command.h"

namespace moed {

Interrupts::Interrupts(Cancellation& command) : command_(command) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([this, signals] { Watch(signals); }).detach();
}

void Interrupts::Handle(std::function<void()> handler) {
  absl::MutexLock lock(&mutex_);
  handler_ = std::move(handler);
}

bool Interrupts::Handled(int signal) {
  absl::MutexLock lock(&mutex_);
  if (handler_ == nullptr) return false;
  if (signal == SIGTERM) _exit(kExitCancelled);
  handler_();
  return true;
}

void Interrupts::Watch(sigset_t signals) {
  for (bool cancelled = false;;) {
    int signal = 0;
    sigwait(&signals, &signal);
    if (Handled(signal)) continue;
    if (cancelled) _exit(kExitCancelled);
    command_.Cancel();
    cancelled = true;
  }
}

}  // namespace moed
