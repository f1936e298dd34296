// When what could not be read is tried again: after a second, and while it fails ever later, up to a minute.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace moed {

// Not synchronised.
class RetryTime {
 public:
  // Of many at once the first counts.
  void OnFailure(int64_t now_nanos) {
    if (at_nanos_) return;
    at_nanos_ = now_nanos + after_nanos_;
    after_nanos_ = std::min(2 * after_nanos_, kLastNanos);
  }
  bool waiting() const { return at_nanos_.has_value(); }
  // Whether it is time; then it is no more, until something fails again.
  bool TakeDue(int64_t now_nanos) {
    const bool due = at_nanos_ && now_nanos >= *at_nanos_;
    if (due) at_nanos_.reset();
    return due;
  }

 private:
  static constexpr int64_t kFirstNanos = 1'000'000'000, kLastNanos = 60 * kFirstNanos;

  std::optional<int64_t> at_nanos_;
  int64_t after_nanos_ = kFirstNanos;
};

}  // namespace moed
