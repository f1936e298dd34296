// /tokenize and /detokenize, as vLLM has them.
#pragma once

#include <memory>

#include "server/http/api/model_names.h"
#include "server/http/transport/exchange.h"
#include "server/http/upstream/daemon.h"

namespace moed::http {

void HandleTokenize(Daemon& daemon, const ModelNames& models, const std::shared_ptr<Exchange>& exchange);
void HandleDetokenize(Daemon& daemon, const ModelNames& models, const std::shared_ptr<Exchange>& exchange);

}  // namespace moed::http
