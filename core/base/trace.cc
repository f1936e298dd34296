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

absl::Status Trace::WriteJson(const std::string& path) const {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return ErrnoError(errno, "cannot write the trace to ", path);
  std::fprintf(file,
               "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"dropped_events\":\"%llu\"},\"traceEvents\":[\n"
               "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"args\":{\"name\":\"compute\"}},\n"
               "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"args\":{\"name\":\"expert reads\"}}",
               static_cast<unsigned long long>(dropped()), kComputeTrack, kReadTrack);
  for (const TraceEvent& e : Events()) {
    std::fprintf(file,
                 ",\n{\"name\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,"
                 "\"args\":{\"layer\":%d,\"expert\":%d,\"bytes\":%llu}}",
                 e.name, e.track, static_cast<double>(e.begin_nanos) * 1e-3,
                 static_cast<double>(e.end_nanos - e.begin_nanos) * 1e-3, e.layer, e.expert,
                 static_cast<unsigned long long>(e.bytes));
  }
  std::fputs("\n]}\n", file);
  const bool failed = std::ferror(file) != 0;
  if (std::fclose(file) != 0 || failed) return ErrnoError(errno, "cannot write the trace to ", path);
  return absl::OkStatus();
}

}  // namespace moed
