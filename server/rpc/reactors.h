// gRPC's server reactors as ResponseTransports, for calls that the engine answers.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "core/base/check.h"
#include "core/base/status.h"
#include "core/base/utf8.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "server/rpc/engine_call.h"
#include "server/rpc/error_details.h"
#include "server/rpc/inference_service.h"
#include "server/rpc/response_pump.h"

namespace moed {

// The context and cancellation of one call. A deadline arrives as a cancellation, either by the server's own timer or, as a rule
// a little earlier, by the client's.
class CallDeadline {
 public:
  explicit CallDeadline(const grpc::CallbackServerContext& context)
      : start_(std::chrono::system_clock::now()), end_(context.deadline()) {}

  absl::Status CancelStatus() const {
    const auto now = std::chrono::system_clock::now();
    const bool never = end_ >= start_ + std::chrono::hours(24 * 365);
    // The server's copy of a deadline is up to one percent later (the header rounds it up), and the client's word comes before
    // it.
    if (!never && now + (end_ - start_) / 50 + std::chrono::milliseconds(20) >= end_) {
      return absl::DeadlineExceededError("the deadline passed before the answer was complete");
    }
    return absl::CancelledError("the client cancelled");
  }

 private:
  const std::chrono::system_clock::time_point start_;
  const std::chrono::system_clock::time_point end_;
};

// Owns itself: deleted by OnDone. Reactor: ServerUnaryReactor or ServerWriteReactor<Message>.
template <class Reactor, class Message, class Call>
class EngineReactor : public Reactor, public ResponseTransport<Message> {
 public:
  EngineReactor(grpc::CallbackServerContext* context, LiveCalls& live) : context_(context), live_(live), deadline_(*context) {}

  // Called once, right after construction; `make_call(transport)`, `translate()` gives an absl::StatusOr<PendingRequest>.
  template <class MakeCall, class Translate>
  void Begin(MakeCall&& make_call, Translate&& translate) {
    call_ = make_call(*this);
    call_->Guarded([&] { call_->Start(Named(translate())); });
  }

  void SendInitialMetadata() override {
    context_->AddInitialMetadata(kQueuePositionKey, std::to_string(call_->queue_position()));
    this->StartSendInitialMetadata();
  }
  void Abandon() override { context_->TryCancel(); }

  void OnSendInitialMetadataDone(bool ok) override { OperationDone(ok); }
  void OnCancel() override {
    call_->Guarded([&] { call_->Cancel(deadline_.CancelStatus()); });
  }
  void OnDone() override {
    live_.Remove(call_.get());
    call_->pump().Close();
    delete this;
  }

 protected:
  void OperationDone(bool ok) {
    call_->Guarded([&] {
      call_->pump().OperationDone(ok);
      if (!ok) call_->Cancel(deadline_.CancelStatus());
    });
  }

 private:
  // A request without an id takes that of the metadata.
  absl::StatusOr<PendingRequest> Named(absl::StatusOr<PendingRequest> request) const {
    if (!request.ok() || !request->engine.name.empty()) return request;
    const auto& metadata = context_->client_metadata();
    if (auto found = metadata.find(kRequestIdKey); found != metadata.end()) {
      request->engine.name.assign(found->second.data(), found->second.size());
      if (!IsValidUtf8(request->engine.name)) request = FieldError(kRequestIdKey, "is not UTF-8");
    }
    return request;
  }

  grpc::CallbackServerContext* const context_;
  LiveCalls& live_;
  const CallDeadline deadline_;
  std::shared_ptr<Call> call_;
};

template <class Message, class Call>
class UnaryEngineReactor final : public EngineReactor<grpc::ServerUnaryReactor, Message, Call> {
 public:
  UnaryEngineReactor(grpc::CallbackServerContext* context, LiveCalls& live, Message* response)
      : EngineReactor<grpc::ServerUnaryReactor, Message, Call>(context, live), response_(response) {}

 private:
  void SendMessage(const Message*) override { MOED_CHECK(false); }  // a pump that does not stream never sends one
  void SendFinish(const Message* last, const grpc::Status& status) override {
    if (last != nullptr) *response_ = *last;
    this->Finish(status);
  }

  Message* const response_;
};

template <class Message, class Call>
class StreamEngineReactor final : public EngineReactor<grpc::ServerWriteReactor<Message>, Message, Call> {
 public:
  using EngineReactor<grpc::ServerWriteReactor<Message>, Message, Call>::EngineReactor;
  void OnWriteDone(bool ok) override { this->OperationDone(ok); }

 private:
  void SendMessage(const Message* message) override { this->StartWrite(message); }
  void SendFinish(const Message* last, const grpc::Status& status) override {
    if (last != nullptr) {
      this->StartWriteAndFinish(last, grpc::WriteOptions(), status);
    } else {
      this->Finish(status);
    }
  }
};

}  // namespace moed
