// gRPC's server reactors as ResponseTransports.
#pragma once

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/base/check.h"
#include "core/base/status.h"
#include "core/base/trace_parent.h"
#include "core/base/utf8.h"
#include "core/engine/request_check.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "proto/metadata.h"
#include "server/rpc/call.h"
#include "server/rpc/encoded.h"
#include "server/rpc/response_pump.h"
#include "server/wire/authorisation.h"
#include "server/wire/connection_bytes.h"
#include "server/wire/error_details.h"

namespace moed {

// The context and cancellation of one call. A deadline arrives as a cancellation, either by the server's own timer or, as a rule
// a little earlier, by the client's.
class CallDeadline {
 public:
  explicit CallDeadline(const grpc::CallbackServerContext& context)
      : given_(context.deadline() - std::chrono::system_clock::now()), start_(std::chrono::steady_clock::now()) {}

  // Absent: there is none.
  std::optional<double> SecondsLeft() const {
    if (Never()) return std::nullopt;
    return std::chrono::duration<double>(given_ - (std::chrono::steady_clock::now() - start_)).count();
  }

  absl::Status CancelStatus() const {
    const auto taken = std::chrono::steady_clock::now() - start_;
    // The server's copy of a deadline is up to one percent later (the header rounds it up), and the client's word comes before
    // it.
    if (!Never() && taken + given_ / 50 + std::chrono::milliseconds(20) >= given_) {
      return absl::DeadlineExceededError("the deadline passed before the answer was complete");
    }
    return absl::CancelledError("the client cancelled");
  }

 private:
  bool Never() const { return given_ >= std::chrono::hours(24 * 365); }

  const std::chrono::system_clock::duration given_;  // by the client, when the call came
  const std::chrono::steady_clock::time_point start_;
};

// A header that is there twice says nothing.
inline Caller CallerOf(const grpc::CallbackServerContext& context) {
  const auto [begin, end] = context.client_metadata().equal_range(kTraceParentKey);
  const bool once = begin != end && std::next(begin) == end;
  const std::string_view text = once ? std::string_view(begin->second.data(), begin->second.size()) : std::string_view();
  return {.peer = context.peer(), .trace_id = TraceIdOf(ReadTraceParent(text))};
}

// Owns itself: deleted by OnDone. Reactor: ServerUnaryReactor or ServerWriteReactor<ByteBuffer>; CallType: a Call with a pump.
template <class Reactor, class CallType>
class CallReactor : public Reactor, public ResponseTransport<Encoded> {
 public:
  CallReactor(grpc::CallbackServerContext* context, LiveCalls& live) : context_(context), live_(live), deadline_(*context) {}

  // Called once, right after construction; `make_call(transport)`, `start(call)`, which is for callers that may ask the model.
  template <class MakeCall, class Start>
  void Begin(const CallEnvironment& environment, size_t message_bytes, MakeCall&& make_call, Start&& start) {
    call_ = make_call(*this);
    Caller caller = CallerOf(*context_);
    CountTaken(caller.peer, message_bytes);
    auto name = Authorise(environment.tokens, *context_, Scope::kInfer);
    if (name.ok()) caller.token = *name;
    call_->SetCaller(std::move(caller));
    if (const auto left = deadline_.SecondsLeft()) call_->SetDeadline(*left);
    call_->Guarded([&] {
      if (!name.ok()) return call_->Refuse(name.status());
      if (environment.tenants != nullptr) {
        auto place = environment.tenants->Enter(*name);
        if (!place.ok()) return call_->Refuse(place.status());
        place_.emplace(*std::move(place));
      }
      start(*call_);
    });
  }
  // Where a request has no id it takes that of the metadata, which is a wish: one that cannot be had is made up.
  template <class Request>
  void Name(Arrival<Request>& arrival) {
    const bool wishes = arrival.id.empty();
    std::string id = wishes ? IdOfMetadata() : arrival.id;
    if (id.empty() || !live_.TakeName(call_.get(), SessionOf(call_->tenant(), id), wishes)) return;
    arrival.id = std::move(id);
  }

  // A proxy that chose this server by the metadata has chosen by the request's session.
  template <class Request>
  void MatchSession(Arrival<Request>& arrival) const {
    if (!arrival.session_id) return;
    const auto [begin, end] = context_->client_metadata().equal_range(kSessionIdKey);
    const bool same = std::all_of(begin, end, [&](const auto& entry) { return entry.second == *arrival.session_id; });
    if (same) return;
    arrival.read = [](const LoadedModel&) {
      return FieldError("session_id", "is not what the metadata's ", kSessionIdKey, " says");
    };
  }

  void SendInitialMetadata() override {
    const QueueEstimate& queue = call_->queue();
    context_->AddInitialMetadata(kQueuePositionKey, std::to_string(queue.position));
    if (queue.wait_seconds) context_->AddInitialMetadata(kQueueSecondsKey, absl::StrFormat("%.3f", *queue.wait_seconds));
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
  // gRPC's clients may ask again by themselves where a call was lost; not where this server has refused it.
  void MarkRefusal(const grpc::Status& status) {
    if (status.error_code() == grpc::StatusCode::UNAVAILABLE) context_->AddTrailingMetadata("grpc-retry-pushback-ms", "-1");
  }
  void OperationDone(bool ok) {
    call_->Guarded([&] {
      call_->pump().OperationDone(ok);
      if (!ok) call_->Cancel(deadline_.CancelStatus());
    });
  }

 private:
  // Empty: there is none that could be an id.
  std::string IdOfMetadata() const {
    const auto& metadata = context_->client_metadata();
    const auto found = metadata.find(kRequestIdKey);
    if (found == metadata.end()) return "";
    std::string id(found->second.data(), found->second.size());
    const bool fits = IsValidUtf8(id) && CheckName(kRequestIdKey, id, 1, call_->limits().request.name_bytes).ok();
    return fits ? id : "";
  }

  grpc::CallbackServerContext* const context_;
  LiveCalls& live_;
  const CallDeadline deadline_;
  std::shared_ptr<CallType> call_;
  std::optional<Tenants::Place> place_;
};

template <class CallType>
class UnaryReactor final : public CallReactor<grpc::ServerUnaryReactor, CallType> {
 public:
  UnaryReactor(grpc::CallbackServerContext* context, LiveCalls& live, grpc::ByteBuffer* response)
      : CallReactor<grpc::ServerUnaryReactor, CallType>(context, live), response_(response) {}

 private:
  void SendMessage(const Encoded*) override { MOED_CHECK(false); }  // a pump that does not stream never sends one
  void SendFinish(const Encoded* last, const grpc::Status& status) override {
    this->MarkRefusal(status);
    if (last != nullptr) *response_ = ToByteBuffer(*last);
    this->Finish(status);
  }

  grpc::ByteBuffer* const response_;
};

template <class CallType>
class StreamReactor final : public CallReactor<grpc::ServerWriteReactor<grpc::ByteBuffer>, CallType> {
 public:
  using CallReactor<grpc::ServerWriteReactor<grpc::ByteBuffer>, CallType>::CallReactor;
  void OnWriteDone(bool ok) override { this->OperationDone(ok); }

 private:
  void SendMessage(const Encoded* message) override {
    written_ = ToByteBuffer(*message);
    this->StartWrite(&written_);
  }
  void SendFinish(const Encoded* last, const grpc::Status& status) override {
    this->MarkRefusal(status);
    if (last == nullptr) return this->Finish(status);
    written_ = ToByteBuffer(*last);
    this->StartWriteAndFinish(&written_, grpc::WriteOptions(), status);
  }

  grpc::ByteBuffer written_;  // by the operation in flight
};

}  // namespace moed
