// What happened when, as a Chrome trace (chrome://tracing, Perfetto) that shows which reads lie under compute, and as sums.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "core/base/clock.h"
#include "core/base/ids.h"

namespace moed {

// One complete event. `track` is kComputeTrack, which is one row, or kReadTrack, of which reads at once have a row each.
struct TraceEvent {
  const char* name;  // static storage: "read"; on the compute track "step", "wait" for a read, and what computes: "attention",
                     // "expert", ...
  int track;
  int64_t begin_nanos;
  int64_t end_nanos;
  int32_t layer = -1;
  int32_t expert = -1;
  uint64_t bytes = 0;
};

inline constexpr int kComputeTrack = 1;
inline constexpr int kReadTrack = 2;

// Time spent under one name of the compute track, by kind of step.
enum class StepKind : uint8_t { kPrefill = 0, kDecode = 1 };  // with tokens of a prompt, or tokens of answers alone
inline constexpr size_t kStepKinds = 2;
struct TracePart {
  std::string_view name;
  std::array<uint64_t, kStepKinds> count{};
  std::array<int64_t, kStepKinds> nanos{};
};

// Bounded: keeps the first `capacity` events and counts the rest; sums up all of the compute track. Thread-safe. A null Trace*
// means "off" everywhere.
class Trace {
 public:
  Trace(const Clock& clock, size_t capacity) : clock_(clock), capacity_(capacity) { events_.reserve(capacity); }

  void Add(const TraceEvent& event);
  int64_t NowNanos() const { return clock_.NowNanos(); }
  // What is added to the compute track from now on belongs to a step of this kind.
  void BeginStep(StepKind kind);
  std::vector<TracePart> Parts() const;  // in the order of their first appearance
  std::vector<TraceEvent> Events() const;
  uint64_t dropped() const;
  // JSON object format of the Trace Event specification, times in microseconds.
  absl::Status WriteJson(const std::string& path) const;

 private:
  const Clock& clock_;
  const size_t capacity_;
  mutable absl::Mutex mutex_;
  std::vector<TraceEvent> events_ ABSL_GUARDED_BY(mutex_);
  uint64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
  StepKind step_ ABSL_GUARDED_BY(mutex_) = StepKind::kPrefill;
  std::vector<TracePart> parts_ ABSL_GUARDED_BY(mutex_);
};

// Records the time from construction to destruction; free when `trace` is null.
class TraceSpan {
 public:
  TraceSpan(Trace* trace, const char* name, int track, LayerId layer = LayerId(-1), int32_t expert = -1, uint64_t bytes = 0)
      : trace_(trace), event_{name, track, trace ? trace->NowNanos() : 0, 0, layer.value(), expert, bytes} {}
  ~TraceSpan() {
    if (trace_ == nullptr) return;
    event_.end_nanos = trace_->NowNanos();
    trace_->Add(event_);
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  Trace* trace_;
  TraceEvent event_;
};

}  // namespace moed
