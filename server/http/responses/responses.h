// The endpoints /v1/responses and /v1/responses/input_tokens.
#pragma once

#include <memory>

#include "server/http/api/model_names.h"
#include "server/http/transport/exchange.h"
#include "server/http/upstream/daemon.h"

namespace moed::http {

void HandleResponses(Daemon& daemon, const ModelNames& models, const std::shared_ptr<Exchange>& exchange);
// How many tokens the prompt of such a request has.
void HandleInputTokens(Daemon& daemon, const ModelNames& models, const std::shared_ptr<Exchange>& exchange);

}  // namespace moed::http
