// Calls to the daemon that hold no thread while they wait. Callbacks come on threads of gRPC.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"
#include "server/http/upstream/call_count.h"
#include "server/http/upstream/passage.h"

namespace moed::http {

// How a call's request goes: when the call is started, or through a passage.
class PassingCall {
 public:
  // Before it is started. `make` makes the request when it goes to the daemon, and is kept with what it holds until then, the
  // connection as long as the call; the passage outlives both.
  void GoThrough(Passage& passage, size_t bytes, std::function<void()> make, std::shared_ptr<const void> connection) {
    passage_ = &passage;
    bytes_ = bytes;
    make_ = std::move(make);
    connection_ = std::move(connection);
  }

 protected:
  // `start` keeps the call alive.
  void Go(grpc::ClientContext& context, std::function<void()> start) {
    if (passage_ == nullptr) return start();
    passage_->Enter(this, bytes_, [this, &context, start = std::move(start)](bool to_daemon) {
      given_up_ = !to_daemon;
      to_daemon ? make_() : context.TryCancel();
      start();
      make_ = nullptr;
    });
  }
  // The request is there, or nobody waits for it any more.
  void Leave() {
    if (passage_ != nullptr) passage_->Leave(this);
  }
  // Of a call that ended so.
  grpc::Status StatusOf(const grpc::Status& ended) const {
    return given_up_ ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "the daemon is not reached") : ended;
  }

 private:
  Passage* passage_ = nullptr;
  bool given_up_ = false;  // before it was started
  size_t bytes_ = 0;
  std::function<void()> make_;
  std::shared_ptr<const void> connection_;
};

// What takes the messages of a stream, one at a time.
template <class Response>
class StreamReader {
 public:
  virtual ~StreamReader() = default;
  // What the daemon said first, before it computes; not where it failed at once.
  virtual void OnBegin(const std::multimap<grpc::string_ref, grpc::string_ref>&) {}
  // The next one comes after StreamCall::Next.
  virtual void OnMessage(const Response& message) = 0;
  // Last of all, once. CANCELLED after StreamCall::Cancel.
  virtual void OnEnd(const grpc::Status& status) = 0;
};

// A stream that is read as fast as somebody asks for it: what is not asked for waits in gRPC's window and then in the daemon.
// Thread-safe. Lives until its end by itself.
template <class Response>
class StreamCall final : public grpc::ClientReadReactor<Response>,
                         public PassingCall,
                         public std::enable_shared_from_this<StreamCall<Response>> {
 public:
  explicit StreamCall(CallCount& count) : count_(count) {}

  // Begins the call by `begin(context, call)` and asks for the first message. A request that goes through no passage may be gone
  // when Start returns.
  template <class Begin>
  void Start(std::shared_ptr<StreamReader<Response>> reader, Begin begin) {
    count_.Add();
    reader_ = std::move(reader);
    self_ = this->shared_from_this();
    begin(&context_, this);
    this->AddHold();  // reads are begun from outside of reactions
    Go(context_, [self = self_] { self->StartCall(); });
    Next();
  }

  void Next() {
    {
      absl::MutexLock lock(&mutex_);
      if (reading_ || ended_) return;
      reading_ = true;
    }
    this->StartRead(&message_);
  }

  // Once a message has come.
  const std::multimap<grpc::string_ref, grpc::string_ref>& initial_metadata() const {
    return context_.GetServerInitialMetadata();
  }

  void Cancel() {
    {
      absl::MutexLock lock(&mutex_);
      cancelled_ = true;
    }
    context_.TryCancel();
    Leave();
    Next();  // nobody else would ask for the end
  }

 private:
  void OnReadInitialMetadataDone(bool ok) override {
    Leave();
    if (ok) reader_->OnBegin(context_.GetServerInitialMetadata());
  }

  void OnReadDone(bool ok) override {
    bool cancelled = false;
    {
      absl::MutexLock lock(&mutex_);
      reading_ = false;
      ended_ = !ok;
      cancelled = cancelled_;
    }
    if (!ok) {
      this->RemoveHold();
    } else if (cancelled) {
      Next();
    } else {
      reader_->OnMessage(message_);
    }
  }

  void OnDone(const grpc::Status& status) override {
    const auto self = std::move(self_);
    Leave();
    std::exchange(reader_, nullptr)->OnEnd(StatusOf(status));
    count_.Remove();
  }

  CallCount& count_;
  grpc::ClientContext context_;
  Response message_;
  std::shared_ptr<StreamReader<Response>> reader_;
  std::shared_ptr<StreamCall> self_;
  absl::Mutex mutex_;
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

// A call with one message back. Thread-safe. Lives until its end by itself.
template <class Response>
class UnaryCall final : public grpc::ClientUnaryReactor,
                        public PassingCall,
                        public std::enable_shared_from_this<UnaryCall<Response>> {
 public:
  using Done = std::function<void(const grpc::Status&, const Response&)>;

  explicit UnaryCall(CallCount& count) : count_(count) {}

  // Begins the call by `begin(context, response, call)`; the request as for StreamCall::Start.
  template <class Begin>
  void Start(Done done, Begin begin) {
    count_.Add();
    done_ = std::move(done);
    self_ = this->shared_from_this();
    begin(&context_, &response_, this);
    Go(context_, [self = self_] { self->StartCall(); });
  }

  // Once it has ended with OK.
  const std::multimap<grpc::string_ref, grpc::string_ref>& initial_metadata() const {
    return context_.GetServerInitialMetadata();
  }

  void Cancel() {
    context_.TryCancel();
    Leave();
  }

 private:
  void OnReadInitialMetadataDone(bool) override { Leave(); }

  void OnDone(const grpc::Status& status) override {
    const auto self = std::move(self_);
    Leave();
    std::exchange(done_, nullptr)(StatusOf(status), response_);  // what it holds is gone before the count falls
    count_.Remove();
  }

  CallCount& count_;
  grpc::ClientContext context_;
  Response response_;
  Done done_;
  std::shared_ptr<UnaryCall> self_;
};

}  // namespace moed::http
