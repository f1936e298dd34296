// The one place from which a call's transport is driven.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/base/check.h"
#include "core/base/clock.h"
#include "grpcpp/support/status.h"

namespace moed {

// What gRPC's server reactors offer. Each of the first two ends with one ResponsePump::OperationDone, unless it throws; nothing
// follows SendFinish.
template <class Message>
class ResponseTransport {
 public:
  virtual ~ResponseTransport() = default;
  virtual void SendInitialMetadata() = 0;
  virtual void SendMessage(const Message* message) = 0;  // stays valid until OperationDone
  // `last` may be null; only with OK, and only during the call.
  virtual void SendFinish(const Message* last, const grpc::Status& status) = 0;
  virtual void Abandon() = 0;  // makes what the client did not take fail soon; any thread, until ResponsePump::Close returned
};

enum class PushResult { kTaken, kTooSlow, kTooLarge, kEnded };

// Keeps gRPC's rules whatever comes in whatever order from whichever thread: at most one operation in flight, exactly one
// SendFinish, nothing after it. What piles up behind an operation in flight goes out as one message. The transport calls Close
// last of all and must live until then. Thread-safe, never blocks. Beginning an operation costs system calls: with `send_later`,
// Push and End leave that to whoever then calls Send.
template <class Message>
class ResponsePump {
 public:
  struct Options {
    bool streaming = true;                                  // false: everything is held for SendFinish
    size_t max_unsent_bytes = 0;                            // beyond, a streaming client is too slow, an answer too large
    void (*append)(Message& to, Message&& from) = nullptr;  // null: there is never more than one message
    std::function<void()> send_later;                       // has Send called once, soon; empty: Push and End call it
  };
  ResponsePump(ResponseTransport<Message>& transport, const Clock& clock, Options options)
      : transport_(transport), clock_(clock), options_(std::move(options)), max_unsent_bytes_(options_.max_unsent_bytes) {}

  // Admitted: initial metadata goes out; messages wait for this.
  void Open() {
    {
      absl::MutexLock lock(&mutex_);
      opened_ = true;
    }
    Pump();
  }

  // So much more than the options say may be unsent.
  void AllowMore(size_t bytes) {
    absl::MutexLock lock(&mutex_);
    max_unsent_bytes_ += bytes;
  }

  // `bytes`: what the message takes. kTooSlow, kTooLarge: not taken, since the cap on unsent bytes would be passed. kEnded: End
  // was before.
  PushResult Push(Message message, size_t bytes) {
    {
      absl::MutexLock lock(&mutex_);
      if (end_.has_value()) return PushResult::kEnded;
      if (unsent_bytes_ + in_flight_bytes_ + bytes > max_unsent_bytes_) {
        return options_.streaming ? PushResult::kTooSlow : PushResult::kTooLarge;
      }
      Append(std::move(message));
      unsent_bytes_ += bytes;
    }
    SendSoon();
    return PushResult::kTaken;
  }

  // The first End counts. With OK, everything pushed and `last`, which takes `bytes`, are delivered before; with an error what is
  // unsent is dropped.
  void End(grpc::Status status, std::optional<Message> last = std::nullopt, size_t bytes = 0) {
    {
      absl::MutexLock lock(&mutex_);
      if (!end_.has_value()) {
        unsent_bytes_ += bytes;
        if (last.has_value()) Append(*std::move(last));
        end_ = std::move(status);
      }
    }
    SendSoon();
  }

  // The transport's operation ended; `ok` false: the client is gone, only the finish remains.
  void OperationDone(bool ok) {
    {
      absl::MutexLock lock(&mutex_);
      in_flight_ = false;
      in_flight_bytes_ = 0;
      if (!ok && (!end_.has_value() || end_->ok())) end_ = grpc::Status(grpc::StatusCode::CANCELLED, "the client is gone");
    }
    Pump();
  }

  // That the client has not taken.
  size_t unsent_bytes() const {
    absl::MutexLock lock(&mutex_);
    return unsent_bytes_ + in_flight_bytes_;
  }

  // What send_later asked for. Nothing happens when a reaction was faster.
  void Send() {
    {
      absl::MutexLock lock(&mutex_);
      send_is_due_ = false;
    }
    Pump();
  }

  // The client has not taken something for longer than `limit_nanos`: an operation, or the finish.
  bool Stalled(int64_t limit_nanos) const {
    absl::MutexLock lock(&mutex_);
    return (in_flight_ || finished_) && !closed_ && clock_.NowNanos() - sent_nanos_ > limit_nanos;
  }
  // Lets what is in flight fail soon, so that the call can end. Not from a transport's callback.
  void Abandon() {
    {
      absl::MutexLock lock(&mutex_);
      if (closed_ || abandoning_) return;
      abandoning_ = true;
    }
    transport_.Abandon();
    absl::MutexLock lock(&mutex_);
    abandoning_ = false;
  }
  // The transport's last word: it is not touched from here on.
  void Close() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &ResponsePump::NotAbandoning));
    closed_ = true;
  }

 private:
  enum class Action { kNone, kMetadata, kMessage, kFinish };

  void Append(Message&& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (pending_.has_value()) {
      MOED_CHECK(options_.append != nullptr);
      options_.append(*pending_, std::move(message));
    } else {
      pending_ = std::move(message);
    }
  }

  Action Next() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (in_flight_ || finished_) return Action::kNone;
    if (end_.has_value() && !end_->ok()) return Action::kFinish;
    if (!opened_) return Action::kNone;
    if (!metadata_sent_) return Action::kMetadata;
    if (end_.has_value()) return Action::kFinish;
    return options_.streaming && pending_.has_value() ? Action::kMessage : Action::kNone;
  }

  void SendSoon() {
    if (options_.send_later == nullptr) return Pump();
    {
      absl::MutexLock lock(&mutex_);
      if (send_is_due_ || Next() == Action::kNone) return;
      send_is_due_ = true;
    }
    options_.send_later();
  }

  Action Begin() {
    absl::MutexLock lock(&mutex_);
    const Action action = Next();
    if (action == Action::kNone) return action;
    (action == Action::kFinish ? finished_ : in_flight_) = true;
    sent_nanos_ = clock_.NowNanos();
    if (action == Action::kMetadata) {
      metadata_sent_ = true;
      return action;
    }
    if (action == Action::kMessage) in_flight_bytes_ = std::exchange(unsent_bytes_, 0);
    if (end_.has_value() && !end_->ok()) pending_.reset();
    sending_ = std::exchange(pending_, std::nullopt);
    return action;
  }

  bool NotAbandoning() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !abandoning_; }

  // The transport is called without the lock (it may call back at once); in_flight_ and finished_ keep every other thread from
  // it.
  void Pump() {
    const Action action = Begin();
    try {
      Perform(action);
    } catch (...) {
      if (action != Action::kFinish) OperationNotBegun();
      throw;
    }
  }

  void Perform(Action action) {
    switch (action) {
      case Action::kNone:
        break;
      case Action::kMetadata:
        transport_.SendInitialMetadata();
        break;
      case Action::kMessage:
        transport_.SendMessage(&*sending_);
        break;
      case Action::kFinish: {
        const std::optional<Message> last = std::exchange(sending_, std::nullopt);  // the pump may be gone when this returns
        transport_.SendFinish(last.has_value() ? &*last : nullptr, *end_);
        break;
      }
    }
  }

  // The transport threw: no OperationDone follows, and what was to be sent is lost. The finish waits for the End that the caller
  // owes, so that the caller can say why the call ended before the client knows that it has.
  void OperationNotBegun() {
    absl::MutexLock lock(&mutex_);
    in_flight_ = false;
    in_flight_bytes_ = 0;
    if (!end_.has_value() || end_->ok()) end_ = grpc::Status(grpc::StatusCode::INTERNAL, "the answer could not be sent");
  }

  ResponseTransport<Message>& transport_;
  const Clock& clock_;
  const Options options_;

  mutable absl::Mutex mutex_;
  bool opened_ ABSL_GUARDED_BY(mutex_) = false;
  bool metadata_sent_ ABSL_GUARDED_BY(mutex_) = false;
  bool in_flight_ ABSL_GUARDED_BY(mutex_) = false;
  bool send_is_due_ ABSL_GUARDED_BY(mutex_) = false;  // send_later was called, Send was not
  bool abandoning_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t sent_nanos_ ABSL_GUARDED_BY(mutex_) = 0;  // when the last operation or the finish was given to the transport
  std::optional<Message> pending_ ABSL_GUARDED_BY(mutex_);
  size_t max_unsent_bytes_ ABSL_GUARDED_BY(mutex_);
  size_t unsent_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t in_flight_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<grpc::Status> end_;  // guarded by mutex_ until finished_, constant after
  std::optional<Message> sending_;   // belongs to the operation in flight
};

}  // namespace moed
