// The protocol over HTTP: /v2 and what is below it.
#pragma once

#include <memory>

#include "server/http/api/model_names.h"
#include "server/http/transport/exchange.h"
#include "server/http/upstream/daemon.h"

namespace moed::http {

HttpReply DescribeServer();
HttpReply TellReady(const Daemon& daemon);
// GET /v2/models/NAME[/versions/1][/ready].
HttpReply DescribeModel(const Daemon& daemon, const ModelNames& models, std::string_view path);
// POST /v2/models/NAME[/versions/1]/infer, generate or generate_stream.
void HandleInference(Daemon& daemon, const ModelNames& models, const std::shared_ptr<Exchange>& exchange);

}  // namespace moed::http
