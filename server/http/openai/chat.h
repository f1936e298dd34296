// The endpoint /v1/chat/completions.
#pragma once

#include <memory>

#include "server/http/api/model_names.h"
#include "server/http/transport/exchange.h"
#include "server/http/upstream/daemon.h"

namespace moed::http {

void HandleChat(Daemon& daemon, const ModelNames& models, const std::shared_ptr<Exchange>& exchange);

}  // namespace moed::http
