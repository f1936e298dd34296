// Notes when each read is given to the device, so that a trace shows reading without the time spent in queues.
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
    {
      absl::MutexLock lock(&mutex_);
      begun_nanos_[op.destination.data()] = clock_.NowNanos();
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
    return begin;
  }

 private:
  ReadBackend& backend_;
  const Clock& clock_;
  absl::Mutex mutex_;
  absl::flat_hash_map<const std::byte*, int64_t> begun_nanos_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moed
