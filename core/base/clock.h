// Time as an interface, so that tests decide what time it is.
#pragma once

#include <atomic>
#include <cstdint>

namespace moed {

// Monotonic nanoseconds. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t NowNanos() const = 0;
  double NowSeconds() const { return static_cast<double>(NowNanos()) * 1e-9; }

  static Clock& Real();  // CLOCK_MONOTONIC
};

class FakeClock final : public Clock {
 public:
  int64_t NowNanos() const override { return now_.load(std::memory_order_relaxed); }
  void AdvanceNanos(int64_t by) { now_.fetch_add(by, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> now_{0};
};

inline double SecondsBetween(int64_t from_nanos, int64_t to_nanos) { return static_cast<double>(to_nanos - from_nanos) * 1e-9; }

}  // namespace moed
