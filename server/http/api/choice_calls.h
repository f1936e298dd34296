// The calls to the daemon that one answer takes: one for each of its choices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/support/status.h"
#include "server/http/api/api_error.h"

namespace moed::http {

// So many calls of one answer run at once at most: half of what a daemon computes at once where it is told nothing else
// (--max-running), so that choices share its steps, and other clients have places.
inline constexpr size_t kChoicesAtOnce = 4;

// Begins in order; until one fails, or somebody stops it. A call that the daemon has no place for while others of the answer run
// is begun again when one of those has ended. Thread-safe.
template <class Call>
class ChoiceCalls {
 public:
  explicit ChoiceCalls(size_t choices) : choices_(choices), left_(choices) {}

  // Begins those that may run now, by `begin(choice)`, which returns the call.
  template <class Begin>
  void BeginMore(Begin begin) {
    while (const std::optional<size_t> choice = Take()) {
      const std::shared_ptr<Call> call = begin(*choice);
      if (!Hold(call)) call->Cancel();
    }
  }

  // Where the answer is once a call has ended. kStopped: it failed before, or nobody waits for it.
  enum class Answer { kGoesOn, kWhole, kFailed, kStopped };
  Answer Ended(size_t choice, const grpc::Status& status) {
    absl::MutexLock lock(&mutex_);
    --running_;
    if (stopped_) return Answer::kStopped;
    if (status.ok()) return --left_ == 0 ? Answer::kWhole : Answer::kGoesOn;
    if (running_ > 0 && ErrorOf(status, {}).retry_seconds.has_value()) {
      at_once_ = running_;
      again_.push_back(choice);
      return Answer::kGoesOn;
    }
    stopped_ = true;
    return Answer::kFailed;
  }

  // Nothing begins any more, and what runs is cancelled.
  void Stop() {
    std::vector<std::weak_ptr<Call>> calls;
    {
      absl::MutexLock lock(&mutex_);
      stopped_ = true;
      calls.swap(calls_);
    }
    for (const auto& held : calls) {
      if (const auto call = held.lock()) call->Cancel();
    }
  }

 private:
  std::optional<size_t> Take() {
    absl::MutexLock lock(&mutex_);
    if (stopped_ || running_ == at_once_ || (again_.empty() && next_ == choices_)) return std::nullopt;
    ++running_;
    if (again_.empty()) return next_++;
    const size_t choice = again_.back();
    again_.pop_back();
    return choice;
  }

  // False: it must not go on.
  bool Hold(const std::shared_ptr<Call>& call) {
    absl::MutexLock lock(&mutex_);
    std::erase_if(calls_, [](const std::weak_ptr<Call>& ended) { return ended.expired(); });
    if (!stopped_) calls_.push_back(call);
    return !stopped_;
  }

  const size_t choices_;
  absl::Mutex mutex_;
  size_t next_ ABSL_GUARDED_BY(mutex_) = 0;            // those before it were begun
  std::vector<size_t> again_ ABSL_GUARDED_BY(mutex_);  // to be begun once more
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t at_once_ ABSL_GUARDED_BY(mutex_) = kChoicesAtOnce;
  size_t left_ ABSL_GUARDED_BY(mutex_);  // that are not whole
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::weak_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moed::http
