#include "server/http/inference/infer_call.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "core/base/clock.h"
#include "server/http/inference/cancellable_call.h"
#include "server/http/inference/encode.h"
#include "server/http/upstream/call.h"

namespace moed::http {
namespace {

using moe::v1::GenerateResponse;

// Lives until OnDone by itself. Finish is called once: by Begin, or by what the daemon answers.
class InferCall final : public grpc::ServerUnaryReactor, public CancellableCall, public std::enable_shared_from_this<InferCall> {
 public:
  InferCall(const InferenceParts& parts, grpc::CallbackServerContext* context, grpc::ByteBuffer* response)
      : CancellableCall(*context), parts_(parts), response_(response) {}

  void Begin(grpc::CallbackServerContext* context, grpc::ByteBuffer message) {
    self_ = shared_from_this();
    if (const absl::Status room = parts_.live.Add(self_); !room.ok()) return End(InferenceStatus(ErrorOf(room)));
    if (const auto refusal = CallerRefusal(parts_, *context)) return End(InferenceStatus(*refusal));
    arrived_.emplace(parts_, *context, "ModelInfer", message, Responses::kOne);
    context->AddInitialMetadata("x-request-id", arrived_->id());
    if (arrived_->refusal()) return End(InferenceStatus(*arrived_->refusal()));
    upstream_ = std::make_shared<UnaryCall<GenerateResponse>>(parts_.daemon.calls());
    upstream_->Start(
        [self = self_](const grpc::Status& status, const GenerateResponse& answer) { self->OnAnswer(status, answer); },
        [&](grpc::ClientContext* upstream, GenerateResponse* answer, auto* call) {
          arrived_->Describe(*upstream);
          const std::shared_ptr<const moe::v1::GenerateRequest> message(self_, &arrived_->message());
          parts_.daemon.inference(message, *call).async()->Generate(upstream, message.get(), answer, call);
        });
  }

  void EndWhenIdle() override {}

 private:
  void OnAnswer(const grpc::Status& status, const GenerateResponse& answer) {
    if (!status.ok()) {
      const ApiError error = ErrorOf(status, InferenceFieldNames());
      arrived_->OnEnd(error.status);
      return End({status.error_code(), MessageOf(error)});
    }
    *response_ = ToByteBuffer(MakeResponse(arrived_->names(), answer.text(), &answer.finish()));
    arrived_->OnReply(response_->Length());
    End(grpc::Status::OK);
  }

  void End(const grpc::Status& status) {
    OnWriteBegun();
    Finish(status);
  }

  void OnCancel() override {
    if (upstream_ == nullptr) return;
    upstream_->Cancel();
  }

  // What the daemon's answer came to may hold this for longer than the server lives, so all that is the server's goes here.
  void OnDone() override {
    arrived_.reset();
    parts_.live.Remove(this);
    WaitUntilNotGivenUp();
    self_.reset();
  }

  const InferenceParts& parts_;
  grpc::ByteBuffer* const response_;
  std::optional<ArrivedRequest> arrived_;
  std::shared_ptr<UnaryCall<GenerateResponse>> upstream_;
  std::shared_ptr<InferCall> self_;
};

}  // namespace

grpc::ServerUnaryReactor* BeginInfer(const InferenceParts& parts, grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  grpc::ByteBuffer message;
  message.Swap(const_cast<grpc::ByteBuffer*>(request));  // gRPC would keep it until the call's end
  const auto call = std::make_shared<InferCall>(parts, context, response);
  call->Begin(context, std::move(message));
  return call.get();
}

}  // namespace moed::http
