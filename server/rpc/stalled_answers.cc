#include "server/rpc/stalled_answers.h"

#include <algorithm>

#include "grpcpp/server_context.h"

namespace moed {

void StalledAnswers::Add(Context* context) {
  absl::MutexLock lock(&mutex_);
  since_[context] = clock_.NowNanos();
}

void StalledAnswers::Remove(Context* context) {
  absl::MutexLock lock(&mutex_);
  const auto untouched = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return given_up_ != context; };
  mutex_.Await(absl::Condition(&untouched));
  since_.erase(context);
}

// Without the lock: gRPC may do what other calls wait for on this thread.
void StalledAnswers::GiveUpStalled(int64_t limit_nanos) {
  while (Context* const stalled = TakeStalled(limit_nanos)) {
    stalled->TryCancel();
    absl::MutexLock lock(&mutex_);
    given_up_ = nullptr;
  }
}

StalledAnswers::Context* StalledAnswers::TakeStalled(int64_t limit_nanos) {
  absl::MutexLock lock(&mutex_);
  const int64_t last = clock_.NowNanos() - limit_nanos;
  const auto stalled = std::ranges::find_if(since_, [&](const auto& entry) { return entry.second < last; });
  if (stalled == since_.end()) return nullptr;
  given_up_ = stalled->first;
  since_.erase(stalled);
  return given_up_;
}

}  // namespace moed
