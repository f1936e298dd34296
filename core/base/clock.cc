#include "core/base/clock.h"

#include <ctime>

namespace moed {
namespace {

class MonotonicClock final : public Clock {
 public:
  int64_t NowNanos() const override {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
  }
};

}  // namespace

Clock& Clock::Real() {
  static MonotonicClock clock;
  return clock;
}

}  // namespace moed
