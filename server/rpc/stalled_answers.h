// Answers that are on their way and that nobody else watches: those that a client does not take in time are given up.
#pragma once

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "core/base/clock.h"
#include "grpcpp/support/server_callback.h"

namespace moed {

// Thread-safe, but that one thread gives up.
class StalledAnswers {
 public:
  using Context = grpc::CallbackServerContext;

  explicit StalledAnswers(const Clock& clock) : clock_(clock) {}

  void Add(Context* context);     // before the call finishes
  void Remove(Context* context);  // from OnDone: it is not touched from here on
  // Cancels the calls that finished more than `limit_nanos` ago. Not from a transport's callback.
  void GiveUpStalled(int64_t limit_nanos);

 private:
  Context* TakeStalled(int64_t limit_nanos);

  const Clock& clock_;
  absl::Mutex mutex_;
  absl::flat_hash_map<Context*, int64_t> since_ ABSL_GUARDED_BY(mutex_);
  Context* given_up_ ABSL_GUARDED_BY(mutex_) = nullptr;  // is being cancelled, without the lock
};

// Of a call with one answer. Owns itself.
class AnswerReactor : public grpc::ServerUnaryReactor {
 public:
  AnswerReactor(StalledAnswers& untaken, StalledAnswers::Context* context) : untaken_(untaken), context_(context) {}
  // Once, instead of Finish.
  void Send(const grpc::Status& status) {
    untaken_.Add(context_);
    Finish(status);
  }
  void OnDone() final {
    untaken_.Remove(context_);
    delete this;
  }

 private:
  StalledAnswers& untaken_;
  StalledAnswers::Context* const context_;
};

}  // namespace moed
