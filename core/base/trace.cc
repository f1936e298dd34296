#include "core/base/trace.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "core/base/status.h"

namespace moed {

void Trace::Add(const TraceEvent& event) {
  absl::MutexLock lock(&mutex_);
  if (event.track == kComputeTrack) {
    const std::string_view name = event.name;
    auto part = std::find_if(parts_.begin(), parts_.end(), [name](const TracePart& other) { return other.name == name; });
    if (part == parts_.end()) part = parts_.insert(part, TracePart{name});
    ++part->count[static_cast<size_t>(step_)];
    part->nanos[static_cast<size_t>(step_)] += event.end_nanos - event.begin_nanos;
  }
  if (events_.size() < capacity_) {
    events_.push_back(event);
  } else {
    ++dropped_;
  }
}

void Trace::BeginStep(StepKind kind) {
  absl::MutexLock lock(&mutex_);
  step_ = kind;
}

std::vector<TracePart> Trace::Parts() const {
  absl::MutexLock lock(&mutex_);
  return parts_;
}

std::vector<TraceEvent> Trace::Events() const {
  absl::MutexLock lock(&mutex_);
  return events_;
}

uint64_t Trace::dropped() const {
  absl::MutexLock lock(&mutex_);
  return dropped_;
}

namespace {

// Of each event: where it is drawn. Of one row events may only nest, and reads lie under each other in part: each has the first
// row after kReadTrack where the last has ended.
std::vector<int> RowsOf(const std::vector<TraceEvent>& events) {
  std::vector<int> rows(events.size(), kComputeTrack);
  std::vector<size_t> reads;
  for (size_t i = 0; i < events.size(); ++i) {
    if (events[i].track == kReadTrack) reads.push_back(i);
  }
  std::ranges::stable_sort(reads, {}, [&](size_t i) { return events[i].begin_nanos; });
  std::vector<int64_t> ends;
  for (const size_t i : reads) {
    const auto free = std::ranges::find_if(ends, [&](int64_t end) { return end <= events[i].begin_nanos; });
    rows[i] = kReadTrack + static_cast<int>(free - ends.begin());
    if (free == ends.end()) {
      ends.push_back(events[i].end_nanos);
    } else {
      *free = events[i].end_nanos;
    }
  }
  return rows;
}

}  // namespace

absl::Status Trace::WriteJson(const std::string& path) const {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return ErrnoError(errno, "cannot write the trace to ", path);
  std::fprintf(file,
               "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"dropped_events\":\"%llu\"},\"traceEvents\":[\n"
               "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"args\":{\"name\":\"compute\"}}",
               static_cast<unsigned long long>(dropped()), kComputeTrack);
  const std::vector<TraceEvent> events = Events();
  const std::vector<int> rows = RowsOf(events);
  const int last = rows.empty() ? kReadTrack : std::max(kReadTrack, *std::ranges::max_element(rows));
  for (int row = kReadTrack; row <= last; ++row) {
    std::fprintf(file, ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"args\":{\"name\":\"expert reads %d\"}}",
                 row, row - kReadTrack + 1);
  }
  for (size_t i = 0; i < events.size(); ++i) {
    const TraceEvent& e = events[i];
    std::fprintf(file,
                 ",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,"
                 "\"args\":{\"layer\":%d,\"expert\":%d,\"bytes\":%llu}}",
                 e.name, rows[i], static_cast<double>(e.begin_nanos) * 1e-3,
                 static_cast<double>(e.end_nanos - e.begin_nanos) * 1e-3, e.layer, e.expert,
                 static_cast<unsigned long long>(e.bytes));
  }
  std::fputs("\n]}\n", file);
  const bool failed = std::ferror(file) != 0;
  if (std::fclose(file) != 0 || failed) return ErrnoError(errno, "cannot write the trace to ", path);
  return absl::OkStatus();
}

}  // namespace moed
