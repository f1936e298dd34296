// ModelStreamInfer: requests one after another, each answered by responses as they come.
#pragma once

#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/http/inference/arrived_request.h"

namespace moed::http {

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* BeginStream(const InferenceParts& parts,
                                                                         grpc::CallbackServerContext* context);

}  // namespace moed::http
