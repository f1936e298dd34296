// Notes when each read is given to the device, so that a trace shows reading without the time spent in queues, and how long any
// was under way, whatever is done with its bytes until its begin is taken included.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "core/base/clock.h"
#include "core/io/read_backend.h"

namespace moed {

// Passes every read on to `backend`. Thread-safe.
class ReadTimer final : public ReadBackend {
 public:
  ReadTimer(ReadBackend& backend, const Clock& clock) : backend_(backend), clock_(clock) {}

  std::string_view name() const override { return backend_.name(); }
  const std::string& description() const override { return backend_.description(); }
  int max_in_flight() const override { return backend_.max_in_flight(); }
  void Submit(ReadOp op) override {
    if (!op.goes_on) {
      absl::MutexLock lock(&mutex_);
      const int64_t now = clock_.NowNanos();
      if (begun_nanos_.empty()) busy_since_nanos_ = now;
      begun_nanos_[op.destination.data()] = now;
    }
    backend_.Submit(std::move(op));
  }

  // When the last read into `destination` was given to the backend; forgets it. Nothing when none was.
  std::optional<int64_t> TakeBegin(const std::byte* destination) {
    absl::MutexLock lock(&mutex_);
    const auto found = begun_nanos_.find(destination);
    if (found == begun_nanos_.end()) return std::nullopt;
    const int64_t begin = found->second;
    begun_nanos_.erase(found);
    if (begun_nanos_.empty()) busy_nanos_ += clock_.NowNanos() - busy_since_nanos_;
    return begin;
  }
  int64_t busy_nanos() const {
    absl::MutexLock lock(&mutex_);
    return busy_nanos_ + (begun_nanos_.empty() ? 0 : clock_.NowNanos() - busy_since_nanos_);
  }

 private:
  ReadBackend& backend_;
  const Clock& clock_;
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<const std::byte*, int64_t> begun_nanos_ ABSL_GUARDED_BY(mutex_);
  int64_t busy_nanos_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t busy_since_nanos_ ABSL_GUARDED_BY(mutex_) = 0;  // meaningful while any is under way
};

}  // namespace moed
