// Calls to the daemon that hold no thread while they wait. Callbacks come on threads of gRPC.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"
#include "server/http/upstream/call_count.h"

namespace moed::http {

// What takes the messages of a stream, one at a time.
template <class Response>
class StreamReader {
 public:
  virtual ~StreamReader() = default;
  // The next one comes after StreamCall::Next.
  virtual void OnMessage(const Response& message) = 0;
  // Last of all, once. CANCELLED after StreamCall::Cancel.
  virtual void OnEnd(const grpc::Status& status) = 0;
};

// A stream that is read as fast as somebody asks for it: what is not asked for waits in gRPC's window and then in the daemon.
// Thread-safe. Lives until its end by itself.
template <class Response>
class StreamCall final : public grpc::ClientReadReactor<Response>, public std::enable_shared_from_this<StreamCall<Response>> {
 public:
  explicit StreamCall(CallCount& count) : count_(count) {}

  // Begins the call by `begin(context, reactor)` and asks for the first message. The request may go when Start returns.
  template <class Begin>
  void Start(std::shared_ptr<StreamReader<Response>> reader, Begin begin) {
    count_.Add();
    reader_ = std::move(reader);
    self_ = this->shared_from_this();
    begin(&context_, this);
    this->AddHold();  // reads are begun from outside of reactions
    this->StartCall();
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
    Next();  // nobody else would ask for the end
  }

 private:
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
    std::exchange(reader_, nullptr)->OnEnd(status);
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
class UnaryCall final : public std::enable_shared_from_this<UnaryCall<Response>> {
 public:
  using Done = std::function<void(const grpc::Status&, const Response&)>;

  explicit UnaryCall(CallCount& count) : count_(count) {}

  // Begins the call by `begin(context, response, callback)`. The request may go when Start returns.
  template <class Begin>
  void Start(Done done, Begin begin) {
    count_.Add();
    begin(&context_, &response_, [self = this->shared_from_this(), done = std::move(done)](const grpc::Status& status) mutable {
      std::exchange(done, nullptr)(status, self->response_);  // what it holds is gone before the count falls
      self->count_.Remove();
    });
  }

  // Once it has ended with OK.
  const std::multimap<grpc::string_ref, grpc::string_ref>& initial_metadata() const {
    return context_.GetServerInitialMetadata();
  }

  void Cancel() { context_.TryCancel(); }

 private:
  CallCount& count_;
  grpc::ClientContext context_;
  Response response_;
};

}  // namespace moed::http
