// moe.v1.Inference over gRPC's callback API: translates, nothing else. Messages come as bytes, so that what they would hold is
// known before they are parsed.
#pragma once

#include "grpcpp/support/byte_buffer.h"
#include "moe/v1/inference.grpc.pb.h"
#include "server/rpc/call.h"
#include "server/rpc/request_translation.h"

namespace moed {

template <class Service>
using WithRawMethods =
    moe::v1::Inference::WithRawCallbackMethod_Generate<moe::v1::Inference::WithRawCallbackMethod_GenerateStream<
        moe::v1::Inference::WithRawCallbackMethod_Chat<moe::v1::Inference::WithRawCallbackMethod_ChatStream<
            moe::v1::Inference::WithRawCallbackMethod_Score<moe::v1::Inference::WithRawCallbackMethod_Tokenize<
                moe::v1::Inference::WithRawCallbackMethod_Detokenize<moe::v1::Inference::WithRawCallbackMethod_DeleteSession<
                    moe::v1::Inference::WithRawCallbackMethod_CountTokens<Service>>>>>>>>>;

// Thread-safe. The environment outlives the server that the service is registered with.
class InferenceService final : public WithRawMethods<moe::v1::Inference::Service> {
 public:
  explicit InferenceService(const CallEnvironment& environment) : environment_(environment) {}

  grpc::ServerUnaryReactor* Generate(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateStream(grpc::CallbackServerContext* context,
                                                             const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Chat(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* ChatStream(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* CountTokens(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                        grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Score(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* DeleteSession(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;

 private:
  using Reading = Arrival<PendingRequest> (InferenceService::*)(const grpc::ByteBuffer* request, const Call& call) const;
  Arrival<PendingRequest> ArriveGenerate(const grpc::ByteBuffer* request, const Call& call) const;
  Arrival<PendingRequest> ArriveChat(const grpc::ByteBuffer* request, const Call& call) const;
  Arrival<PendingRequest> ArriveScore(const grpc::ByteBuffer* request, const Call& call) const;
  template <class CallType, class Reactor>
  Reactor* Begin(Reactor* reactor, Method method, const grpc::ByteBuffer* request, Reading reading);
  template <class CallType>
  grpc::ServerUnaryReactor* Answer(Method method, grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response, Reading reading);
  template <class CallType>
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Stream(Method method, grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* request, Reading reading);

  const CallEnvironment& environment_;
};

}  // namespace moed
