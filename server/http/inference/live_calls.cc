#include "server/http/inference/live_calls.h"

#include <vector>

#include "core/base/clock.h"
#include "core/base/status.h"

namespace moed::http {
namespace {

constexpr int64_t kNanosPerSecond = 1'000'000'000;
constexpr const char* kEnding = "the server is ending";

}  // namespace

LiveCalls::LiveCalls(const LiveCallLimits& limits)
    : limits_(limits), ticker_([this] {
        while (!stop_.WaitForNotificationWithTimeout(absl::Seconds(1))) GiveUpStalled();
      }) {}

LiveCalls::~LiveCalls() {
  stop_.Notify();
  ticker_.join();
}

absl::Status LiveCalls::Add(const std::shared_ptr<LiveCall>& call) {
  absl::MutexLock lock(&mutex_);
  if (draining_) return absl::UnavailableError(kEnding);
  if (static_cast<int>(calls_.size()) >= limits_.calls) {
    return absl::UnavailableError(StrCat("all ", limits_.calls, " calls are taken (--max-connections)"));
  }
  calls_.emplace(call.get(), call);
  return absl::OkStatus();
}

void LiveCalls::Remove(LiveCall* call) {
  absl::MutexLock lock(&mutex_);
  calls_.erase(call);
}

absl::StatusOr<LiveCalls::Room> LiveCalls::Enter(size_t bytes) {
  absl::MutexLock lock(&mutex_);
  if (draining_) return absl::UnavailableError(kEnding);
  if (requests_ >= limits_.calls) {
    return absl::UnavailableError(StrCat(limits_.calls, " requests run, no more are taken (--max-connections)"));
  }
  if (bytes > limits_.bytes - bytes_) return absl::UnavailableError("too many large requests at once (--max-bodies)");
  ++requests_;
  bytes_ += bytes;
  return Room(*this, bytes);
}

void LiveCalls::Leave(size_t bytes) {
  absl::MutexLock lock(&mutex_);
  --requests_;
  bytes_ -= bytes;
}

void LiveCalls::Drain() {
  {
    absl::MutexLock lock(&mutex_);
    draining_ = true;
  }
  for (const auto& call : Calls()) call->EndWhenIdle();
}

void LiveCalls::GiveUpStalled() {
  const int64_t since_nanos = Clock::Real().NowNanos() - limits_.write_seconds * kNanosPerSecond;
  for (const auto& call : Calls()) call->GiveUpIfStalled(since_nanos);
}

std::vector<std::shared_ptr<LiveCall>> LiveCalls::Calls() {
  std::vector<std::shared_ptr<LiveCall>> live;
  absl::MutexLock lock(&mutex_);
  for (const auto& entry : calls_) {
    if (auto call = entry.second.lock()) live.push_back(std::move(call));
  }
  return live;
}

}  // namespace moed::http
