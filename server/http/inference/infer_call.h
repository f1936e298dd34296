// ModelInfer: one request, one response.
#pragma once

#include <memory>

#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/http/inference/arrived_request.h"

namespace moed::http {

// Answers the call. The request's bytes are taken.
grpc::ServerUnaryReactor* BeginInfer(const InferenceParts& parts, grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request, grpc::ByteBuffer* response);

}  // namespace moed::http
