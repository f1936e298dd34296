// moe.v1.Inference over gRPC's callback API: translates, nothing else.
#pragma once

#include "moe/v1/inference.grpc.pb.h"
#include "server/rpc/engine_call.h"

namespace moed {

// Initial metadata, sent at admission: how many requests waited before this one.
inline constexpr char kQueuePositionKey[] = "moe-queue-position";
// Taken as the request's id when request_id is empty.
inline constexpr char kRequestIdKey[] = "x-request-id";

// Thread-safe. The environment outlives the server that the service is registered with.
class InferenceService final : public moe::v1::Inference::CallbackService {
 public:
  explicit InferenceService(const CallEnvironment& environment) : environment_(environment) {}

  grpc::ServerUnaryReactor* Generate(grpc::CallbackServerContext* context, const moe::v1::GenerateRequest* request,
                                     moe::v1::GenerateResponse* response) override;
  grpc::ServerWriteReactor<moe::v1::GenerateResponse>* GenerateStream(grpc::CallbackServerContext* context,
                                                                      const moe::v1::GenerateRequest* request) override;
  grpc::ServerUnaryReactor* Score(grpc::CallbackServerContext* context, const moe::v1::ScoreRequest* request,
                                  moe::v1::ScoreResponse* response) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context, const moe::v1::TokenizeRequest* request,
                                     moe::v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context, const moe::v1::DetokenizeRequest* request,
                                       moe::v1::DetokenizeResponse* response) override;

 private:
  const CallEnvironment& environment_;
};

}  // namespace moed
