// The endpoints /v1/messages and /v1/messages/count_tokens.
#pragma once

#include <memory>

#include "server/http/api/model_names.h"
#include "server/http/transport/exchange.h"
#include "server/http/upstream/daemon.h"

namespace moed::http {

void HandleMessages(Daemon& daemon, const ModelNames& models, const std::shared_ptr<Exchange>& exchange);
void HandleCountTokens(Daemon& daemon, const ModelNames& models, const std::shared_ptr<Exchange>& exchange);

}  // namespace moed::http
