// The part of a call that is given up when its client takes nothing.
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/base/clock.h"
#include "grpcpp/server_context.h"
#include "server/http/inference/live_calls.h"

namespace moed::http {

class CancellableCall : public LiveCall {
 public:
  explicit CancellableCall(grpc::CallbackServerContext& context) : context_(context) {}

  void GiveUpIfStalled(int64_t since_nanos) override {
    {
      absl::MutexLock lock(&stall_mutex_);
      if (done_ || write_begun_nanos_ == 0 || write_begun_nanos_ > since_nanos) return;
      giving_up_ = true;
    }
    context_.TryCancel();  // without the lock: reactions may follow at once
    absl::MutexLock lock(&stall_mutex_);
    giving_up_ = false;
  }

 protected:
  void OnWriteBegun() {
    absl::MutexLock lock(&stall_mutex_);
    write_begun_nanos_ = Clock::Real().NowNanos();
  }
  void OnWriteTaken() {
    absl::MutexLock lock(&stall_mutex_);
    write_begun_nanos_ = 0;
  }
  // Of OnDone: the context is gone when that returns.
  void WaitUntilNotGivenUp() {
    absl::MutexLock lock(&stall_mutex_);
    done_ = true;
    stall_mutex_.Await(absl::Condition(
        +[](bool* giving_up) { return !*giving_up; }, &giving_up_));
  }

 private:
  grpc::CallbackServerContext& context_;
  absl::Mutex stall_mutex_;
  int64_t write_begun_nanos_ ABSL_GUARDED_BY(stall_mutex_) = 0;  // 0: the client has taken all
  bool giving_up_ ABSL_GUARDED_BY(stall_mutex_) = false;
  bool done_ ABSL_GUARDED_BY(stall_mutex_) = false;
};

}  // namespace moed::http
