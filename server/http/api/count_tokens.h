// How many tokens the prompt of a conversation has; nothing is computed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "moe/v1/inference.pb.h"
#include "server/http/api/api_error.h"
#include "server/http/api/model_names.h"
#include "server/http/transport/exchange.h"
#include "server/http/upstream/daemon.h"

namespace moed::http {

struct CountRequest {
  std::string model;
  moe::v1::ChatRequest conversation;
  HttpReply (*error)(const ApiError& error);
  std::function<ApiError(const grpc::Status& status)> error_of;  // of the daemon's
  std::function<HttpReply(int32_t tokens)> reply;
};
void CountTokens(Daemon& daemon, const ModelNames& models, const std::shared_ptr<Exchange>& exchange, CountRequest request);

}  // namespace moed::http
