// ModelInferRequest, from bytes to a request of the daemon.
#pragma once

#include "absl/status/statusor.h"
#include "grpcpp/support/byte_buffer.h"
#include "server/http/inference/request.h"

namespace moed::http {

// The request's id, found without parsing; "" where it is longer than an id may be.
std::string PeekId(const grpc::ByteBuffer& message);

// `message` is empty afterwards. INVALID_ARGUMENT names what is wrong: more than a message may hold (before it is parsed), an
// input or a parameter. NOT_FOUND: another version of the model.
absl::StatusOr<InferenceDraft> ReadModelInfer(grpc::ByteBuffer& message, Responses responses);

}  // namespace moed::http
