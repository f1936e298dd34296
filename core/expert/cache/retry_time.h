// When what could not be read is tried again: after a second, and while it fails ever later, up to a minute.
#pragma once

#include <algorithm>
#include <cstdint>

namespace moed {

// Not synchronised.
class RetryTime {
 public:
  // Of many at once the first counts. After a quarter of an hour without any it begins anew.
  void OnFailure(int64_t now_nanos) {
    if (waiting()) return;
    if (now_nanos - failed_nanos_ >= kQuietNanos) after_nanos_ = kFirstNanos;
    failed_nanos_ = now_nanos;
    at_nanos_ = now_nanos + after_nanos_;
    after_nanos_ = std::min(2 * after_nanos_, kLastNanos);
  }
  bool waiting() const { return at_nanos_ != kNever; }
  // Whether it is time; then it is no more, until something fails again.
  bool TakeDue(int64_t now_nanos) {
    const bool due = now_nanos >= at_nanos_;
    if (due) at_nanos_ = kNever;
    return due;
  }

 private:
  static constexpr int64_t kNever = INT64_MAX;
  static constexpr int64_t kFirstNanos = 1'000'000'000, kLastNanos = 60 * kFirstNanos, kQuietNanos = 15 * kLastNanos;

  int64_t at_nanos_ = kNever;
  int64_t after_nanos_ = kFirstNanos;
  int64_t failed_nanos_ = 0;
};

}  // namespace moed
