// gRPC's reactors of the calls that change the model. A client that goes away leaves the change going on.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "server/rpc/model_change.h"

namespace moed {

// A message for every state of the change that the client takes, then the end.
grpc::ServerWriteReactor<grpc::ByteBuffer>* TellOfChange(std::shared_ptr<ModelChange> change,
                                                         std::function<grpc::ByteBuffer(const ModelChange::State&)> message);
// Ends with the change; `fill` makes the answer of one that was OK.
grpc::ServerUnaryReactor* AwaitChange(std::shared_ptr<ModelChange> change, std::function<void()> fill);

}  // namespace moed
