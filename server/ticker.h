// Runs a function about once a second on a thread of its own.
#pragma once

#include <functional>
#include <thread>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace moed {

class Ticker {
 public:
  explicit Ticker(std::function<void()> tick)
      : thread_([this, tick = std::move(tick)] {
          do {
            tick();
          } while (!stop_.WaitForNotificationWithTimeout(absl::Seconds(1)));
        }) {}
  ~Ticker() {
    stop_.Notify();
    thread_.join();
  }

 private:
  absl::Notification stop_;
  std::thread thread_;
};

}  // namespace moed
